import { describe, expect, it } from "vitest";
import { KafkaIngest, type KafkaIngestOptions } from "../../../src/kafka/index.ts";
import { onCleanup, type TestDatabase, testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { KafkaLog } from "../../support/kafka-log.ts";

const TOPIC = "jobs";
const range = (from: number, to: number): number[] =>
  Array.from({ length: to - from }, (_, place) => from + place);

interface Read {
  readonly database: TestDatabase;
  readonly start: (options?: Partial<KafkaIngestOptions>) => Promise<KafkaIngest>;
  readonly numbers: () => Promise<number[]>;
  readonly nextOffset: () => Promise<string | undefined>;
}

async function reading(log: KafkaLog): Promise<Read> {
  const database = await testDatabase();
  const mill = await database.connect();
  return {
    database,
    async start(options = {}) {
      const topics = [{ topic: TOPIC, priority: "normal" as const }];
      const more = { topicCheckSeconds: 0.1, onDataLoss: "continue" as const, ...options };
      const ingest = new KafkaIngest(mill, log, { topics, queue: "jobs", ...more });
      onCleanup(() => ingest.stop());
      await ingest.start();
      return ingest;
    },
    async numbers() {
      const { rows } = await database.pool.query<{ n: number }>(
        "SELECT (payload::jsonb->>'n')::int AS n FROM tidemill.live_tasks ORDER BY 1",
      );
      return rows.map(({ n }) => n);
    },
    async nextOffset() {
      const { rows } = await database.pool.query<{ next_offset: string }>(
        "SELECT next_offset FROM tidemill.kafka_offsets",
      );
      return rows[0]?.next_offset;
    },
  };
}

/** Offsets up to this one cannot be stored, until what it gives is called. */
async function refuseOffsets({ database }: Read, upTo: number): Promise<() => Promise<void>> {
  await database.pool.query(`
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
      $$ BEGIN RAISE 'full' USING ERRCODE = 'disk_full'; END $$;
    CREATE TRIGGER refuse BEFORE UPDATE ON tidemill.kafka_offsets
      FOR EACH ROW WHEN (NEW.next_offset <= ${upTo}) EXECUTE FUNCTION refuse()`);
  return async () =>
    void (await database.pool.query("DROP TRIGGER refuse ON tidemill.kafka_offsets"));
}

describe("onDataLoss: continue", () => {
  it("stores what was fetched before the log lost what follows it", async () => {
    const log = new KafkaLog();
    const here = await reading(log);
    log.write(0);
    const ingest = await here.start();
    await eventually(async () => expect(await here.nextOffset()).toBe("1"));
    const release = await refuseOffsets(here, 20);
    log.write(...range(1, 20));
    await eventually(() => expect(ingest.status()[0]?.buffered).toBe(19));
    log.records.push(...range(20, 40).map((n) => JSON.stringify({ payload: { n } })));
    log.earliest = 30;
    log.fetch();
    await eventually(() => expect(log.asked.at(-1)).toBe(20n));
    await release();
    await eventually(async () =>
      expect(await here.numbers()).toEqual([...range(0, 20), ...range(30, 40)]),
    );
    expect(ingest.metrics.skipped.value({ topic: TOPIC })).toBe(10);
  });

  it("goes on at the end of a log that is shorter than it was, and skips nothing", async () => {
    const log = new KafkaLog();
    const here = await reading(log);
    log.write(...range(0, 20));
    const ingest = await here.start();
    await eventually(async () => expect(await here.nextOffset()).toBe("20"));
    log.records.length = 15;
    log.fetch();
    await eventually(async () => expect(await here.nextOffset()).toBe("15"));
    log.write(100);
    await eventually(async () => expect(await here.numbers()).toEqual([...range(0, 20), 100]));
    expect(ingest.metrics.skipped.value({ topic: TOPIC })).toBe(0);
  });
});

describe("onDataLoss: stop", () => {
  it("shows the partition that is not read, and goes on when its offset was moved", async () => {
    const log = new KafkaLog();
    const here = await reading(log);
    log.write(...range(0, 20));
    log.earliest = 5;
    const ingest = await here.start();
    await eventually(async () => expect(await here.nextOffset()).toBe("20"));
    await ingest.stop();
    await here.database.pool.query("UPDATE tidemill.kafka_offsets SET next_offset = 2");
    const stopped = await here.start({ onDataLoss: "stop" });
    const gauges = stopped.metrics;
    await eventually(() => expect(gauges.stopped.value({ topic: TOPIC })).toBe(1));
    log.write(20, 21);
    const lag = (): number | undefined => gauges.lag.value({ topic: TOPIC, partition: "0" });
    await eventually(() => expect(lag()).toBe(20));
    await here.database.pool.query("UPDATE tidemill.kafka_offsets SET next_offset = 20");
    await eventually(async () => expect(await here.numbers()).toEqual(range(5, 22)));
    expect(gauges.stopped.value({ topic: TOPIC })).toBe(0);
  });
});
