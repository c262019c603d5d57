import { describe, expect, it } from "vitest";
import { consumer, type Tidemill } from "../../../src/index.ts";
import { onCleanup, type TestDatabase, testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { FAST } from "../../support/options.ts";

const COUNT = 20_000;

async function fill(mill: Tidemill, count: number, bytes = 10): Promise<bigint> {
  let position = 0n;
  for (let done = 0; done < count; done += 1_000) {
    const data = { filler: "x".repeat(bytes) };
    const events = Array.from({ length: Math.min(1_000, count - done) }, () => ({
      type: "Filled",
      data,
    }));
    ({ position } = await mill.append({ type: "Thing", id: `${done}` }, events));
  }
  return position;
}

/** Rows of the log that any session fetched, once all of them have reported. */
async function fetchedRows(database: TestDatabase): Promise<number> {
  const { rows } = await database.pool.query<{ fetched: number }>(
    `SELECT (COALESCE(idx_tup_fetch, 0) + seq_tup_read)::int AS fetched
       FROM pg_stat_user_tables WHERE relname = 'events'`,
  );
  return rows[0]?.fetched ?? 0;
}

const idle = (name: string) => consumer(name, { handle: () => {} });
const names = (count: number): string[] => Array.from({ length: count }, (_, at) => `c${at}`);
const slow = { ...FAST, batchPause: 0, batchSize: 500 };

/** A handler that waits at its first event until it is let go. */
function gated(name: string) {
  let open: () => void = () => {};
  let arrive: () => void = () => {};
  const gate = new Promise<void>((resolve) => {
    open = resolve;
  });
  const arrived = new Promise<void>((resolve) => {
    arrive = resolve;
  });
  const handle = async (): Promise<void> => {
    arrive();
    await gate;
  };
  onCleanup(async () => open()); // Or the worker would wait for it when a test has failed.
  return { consumer: consumer(name, { handle }), open, arrived };
}

describe("the shared reader", () => {
  it("reads the log about once for ten consumers", async () => {
    const database = await testDatabase();
    const mill = await database.connect();
    const head = await fill(mill, COUNT);
    const before = await eventually(async () => {
      const fetched = await fetchedRows(database);
      await database.pool.query("SELECT pg_stat_clear_snapshot()");
      return fetched;
    });
    const consumers = names(10).map(idle);
    const worker = await mill.startWorker({ ...slow, consumers });
    for (const one of consumers) await mill.waitFor(one, { position: head });
    expect(mill.metrics.rowsRead.value()).toBeGreaterThanOrEqual(COUNT);
    expect(mill.metrics.rowsRead.value()).toBeLessThan(1.3 * COUNT);
    await worker.stop(); // A session reports what it fetched at its end.
    const after = await eventually(async () => {
      const fetched = await fetchedRows(database);
      expect(fetched - before).toBeGreaterThanOrEqual(COUNT);
      return fetched;
    });
    // Each batch also looks at its last event, and the dispatcher at the newest.
    expect(after - before).toBeLessThan(2 * COUNT);
  });

  it("does not let a consumer far behind make the others read again", async () => {
    const database = await testDatabase();
    const mill = await database.connect();
    await fill(mill, 2_500, 500);
    const late = gated("late");
    const others = names(4).map(idle);
    const consumers = [late.consumer, ...others];
    // About 6,700 of these events fit.
    await mill.startWorker({ ...slow, consumers, readCacheBytes: 8 * 1024 * 1024 });
    await late.arrived;
    const growTo = async (count: number): Promise<void> => {
      for (let position = 0n; position < count; ) {
        position = await fill(mill, 1_000, 500);
        for (const one of others) await mill.waitFor(one, { position });
      }
    };
    await growTo(9_500);
    const before = mill.metrics.rowsRead.value();
    expect(before).toBeLessThan(1.2 * 9_500);
    late.open();
    await growTo(12_500);
    await mill.waitFor(late.consumer, { position: 12_500n });
    // The late one reads its own way once, and what is new is shared.
    expect(mill.metrics.rowsRead.value() - before).toBeLessThan(1.2 * 12_500);
  });

  it("goes on without rest when not even one read fits into the cache", async () => {
    const database = await testDatabase();
    const mill = await database.connect();
    const position = await fill(mill, 200, 30_000);
    const consumers = names(3).map(idle);
    const worker = {
      ...slow,
      consumers,
      batchSize: 10,
      pollInterval: 60_000,
      maxPollInterval: 60_000,
    };
    await mill.startWorker({ ...worker, readCacheBytes: 1024 * 1024 });
    for (const one of consumers) await mill.waitFor(one, { position }, { timeoutMs: 25_000 });
  });

  it("lets a consumer catch up while events are appended, whatever pieces it reads", async () => {
    const database = await testDatabase();
    const mill = await database.connect();
    await fill(mill, 2_500);
    const late = gated("late");
    await mill.startWorker({ ...slow, consumers: [late.consumer, idle("other")] });
    await late.arrived;
    for (let time = 0; time < 20; time += 1) {
      const position = await fill(mill, 7);
      await mill.waitFor("other", { position });
    }
    late.open();
    const position = await fill(mill, 7);
    await mill.waitFor("late", { position }, { timeoutMs: 20_000 });
  });

  it("lets a consumer that was rewound go on though the cache is full", async () => {
    const database = await testDatabase();
    const mill = await database.connect();
    const [one, other] = [idle("one"), idle("other")];
    await mill.startWorker({ ...slow, consumers: [one, other], readCacheBytes: 1024 * 1024 });
    const position = await fill(mill, 4_000, 500);
    await mill.waitFor(one, { position });
    await mill.waitFor(other, { position });
    await mill.consumers.rewind("one", { to: 0n });
    await mill.waitFor(one, { position }, { timeoutMs: 20_000 });
    // The database has a batch before its worker has heard so, and counts it.
    const handled = () => mill.metrics.eventsHandled.value({ consumer: "one" });
    await eventually(() => expect(handled()).toBe(8_000));
  });
});
