import pg from "pg";
import { consumer, Tidemill, type WorkerOptions } from "../../src/index.ts";
import { type Figure, median } from "../support/figure.ts";
import { type BenchServer, withClient } from "../support/server.ts";

const EVENTS = 200_000;
const SHARED_EVENTS = 50_000;
const SOURCE_EVENTS = 1_000;
const BARE_ROWS = 1_000;

export async function catchUpFigures(server: BenchServer, pairs: number): Promise<Figure[]> {
  const url = await server.database();
  await fillLog(url, EVENTS);
  const bare: number[] = [];
  const ours: number[] = [];
  for (let pair = 0; pair < pairs; pair += 1) {
    bare.push(await readBare(url, EVENTS));
    ours.push(await catchUp(url, { name: `catch_up_${pair}`, events: EVENTS }));
  }
  const settings = {
    ...server.settings,
    events: EVENTS,
    pairs,
    payloadBytes: 100,
    worker: "defaults (batchSize 500, batchPause 0), handler reads event.data",
    bareReader: `one prepared connection, ${BARE_ROWS} rows a read, two in flight, JSON parsed`,
  };
  const ratios = ours.map((rate, pair) => rate / (bare[pair] ?? Number.NaN));
  const source = await catchUp(url, {
    name: "source_defaults",
    events: SOURCE_EVENTS,
    worker: { batchSize: 100, batchPause: 200 },
  });
  return [
    {
      figure: "log.catchup_vs_bare_reader",
      value: median(ratios),
      ours: median(ours),
      anchor: median(bare),
      unit: "of the bare reader's events/s",
      settings,
    },
    {
      figure: "log.catchup_events_per_s",
      value: median(ours),
      unit: "events/s",
      settings: { ...settings, withSourceDefaults: Math.round(source) },
    },
    await sharedReads(server),
  ];
}

/** Rows as an application would have: 100 bytes of JSON, twenty events a stream. */
async function fillLog(url: string, events: number): Promise<void> {
  await withClient(url, async (client) => {
    await client.query(
      `INSERT INTO tidemill.events
              (stream_type, stream_id, stream_version, event_id, event_type, payload)
       SELECT 'Order', 'order-' || (n / 20), n % 20 + 1, gen_random_uuid(), 'OrderPaid',
              convert_to('{"order":' || n || ',"total":4200,"currency":"EUR","note":"' ||
                         repeat('x', 100 - 46 - length(n::text)) || '"}', 'UTF8')
         FROM generate_series(0, $1 - 1) AS n`,
      [events],
    );
    await client.query("VACUUM (ANALYZE) tidemill.events");
    await client.query("CHECKPOINT");
  });
}

/** What one connection can do at best: two reads in flight, every payload parsed. */
async function readBare(url: string, events: number): Promise<number> {
  const client = new pg.Client({ connectionString: url, pipeline: true });
  await client.connect();
  const read = (after: number): Promise<pg.QueryResult<{ payload: Buffer }>> =>
    client.query({
      name: "bare_reader",
      text: `SELECT global_position, stream_type, stream_id, stream_version, event_id, event_type,
                    event_version, payload, metadata, trace_id, correlation_id, causation_id,
                    created_at
               FROM tidemill.events
              WHERE global_position > $1
              ORDER BY global_position
              LIMIT $2`,
      values: [after, BARE_ROWS],
    });
  const startedAt = performance.now();
  let parsed = 0;
  let next = read(0);
  for (let after = BARE_ROWS; parsed < events; after += BARE_ROWS) {
    const current = next;
    if (after < events) next = read(after); // The log has no holes, so the next range is known.
    const { rows } = await current;
    for (const row of rows) {
      JSON.parse(row.payload.toString("utf8"));
      parsed += 1;
    }
  }
  const seconds = (performance.now() - startedAt) / 1000;
  await client.end();
  return events / seconds;
}

interface CatchUp {
  readonly name: string;
  readonly events: number;
  readonly worker?: Omit<WorkerOptions, "consumers">;
}

/** From the start of the worker to a checkpoint, read from the store, at the end of the log. */
async function catchUp(url: string, run: CatchUp): Promise<number> {
  const mill = await Tidemill.connect(url);
  const reader = consumer(run.name, { handle: (event) => void event.data });
  const startedAt = performance.now();
  const worker = await mill.startWorker({ consumers: [reader], ...run.worker });
  await untilCheckpoint(url, [run.name], run.events);
  const seconds = (performance.now() - startedAt) / 1000;
  await worker.stop();
  await mill.close();
  return run.events / seconds;
}

async function untilCheckpoint(url: string, names: string[], position: number): Promise<void> {
  await withClient(url, async (client) => {
    for (;;) {
      const { rows } = await client.query<{ done: boolean }>(
        `SELECT count(*) = $3 AS done FROM tidemill.consumer_checkpoints
          WHERE consumer_name = ANY($1) AND last_position >= $2`,
        [names, position, names.length],
      );
      if (rows[0]?.done === true) return;
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  });
}

/** Ten consumers in one worker: how many times was each event read? */
async function sharedReads(server: BenchServer): Promise<Figure> {
  const url = await server.database();
  await fillLog(url, SHARED_EVENTS);
  const mill = await Tidemill.connect(url);
  const names = Array.from({ length: 10 }, (_, index) => `shared_${index}`);
  const consumers = names.map((name) => consumer(name, { handle: () => {} }));
  const worker = await mill.startWorker({ consumers });
  await untilCheckpoint(url, names, SHARED_EVENTS);
  await worker.stop();
  const value = mill.metrics.rowsRead.value() / SHARED_EVENTS;
  await mill.close();
  return {
    figure: "log.reads_per_event_of_10_consumers",
    value,
    unit: "reads",
    settings: { ...server.settings, events: SHARED_EVENTS, consumers: 10 },
  };
}
