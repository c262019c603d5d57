import { describe, expect, it } from "vitest";
import { type Consumer, consumer, type WorkerOptions } from "../../../src/index.ts";
import { type TestDatabase, testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import {
  appendEvents,
  createHandled,
  expectOnceInOrder,
  readHandled,
  recordHandled,
  recording,
  STEADY,
  statusOf,
} from "./handled.ts";

/** A promise, and the function that resolves it. */
function signal(): { readonly given: Promise<void>; readonly give: () => void } {
  let give: () => void = () => {};
  const given = new Promise<void>((resolve) => {
    give = resolve;
  });
  return { given, give };
}

async function setup(): Promise<TestDatabase> {
  const database = await testDatabase();
  await createHandled(database);
  return database;
}

describe("a batch", () => {
  it("leaves nothing behind when one of its events fails, and begins again", async () => {
    const database = await setup();
    const mill = await database.connect();
    let isCured = false;
    const attempts: bigint[] = [];
    const books = consumer("books", {
      handle: async (event, context) => {
        attempts.push(event.position);
        await recordHandled(event, context);
        if (event.position === 2n && !isCured) throw new Error("not yet");
      },
    });
    await appendEvents(mill, 3);
    await mill.startWorker({ consumers: [books], ...STEADY, maxConsecutiveFailures: 1_000 });
    await eventually(() => {
      expect(attempts.filter((position) => position === 1n).length).toBeGreaterThanOrEqual(2);
    });
    expect(await readHandled(database.pool)).toEqual([]);
    expect((await statusOf(mill, "books")).checkpoint).toBe(0n);
    isCured = true;
    await mill.waitFor(books, { position: 3n });
    await expectOnceInOrder(database.pool, "books", [1n, 2n, 3n]);
    expect(attempts).not.toContain(4n);
  });

  it("commits what was handled and how far it came together", async () => {
    const database = await setup();
    const mill = await database.connect();
    await appendEvents(mill, 20);
    await mill.runToHead({ consumers: [recording("books")], ...STEADY, batchSize: 7 });
    const handled = await readHandled(database.pool);
    const sizes = new Map<string, number>();
    for (const { batch } of handled) sizes.set(batch, (sizes.get(batch) ?? 0) + 1);
    expect([...sizes.values()]).toEqual([7, 7, 6]);
  });

  it("is not seen by others before it ends", async () => {
    const database = await setup();
    const mill = await database.connect();
    const entered = signal();
    const goOn = signal();
    const books = consumer("books", {
      handle: async (event, context) => {
        await recordHandled(event, context);
        if (event.position < 2n) return;
        entered.give();
        await goOn.given;
      },
    });
    await appendEvents(mill, 2);
    await mill.startWorker({ consumers: [books], ...STEADY });
    await entered.given;
    expect(await readHandled(database.pool)).toEqual([]);
    goOn.give();
    await mill.waitFor(books, { position: 2n });
    expect(await readHandled(database.pool)).toHaveLength(2);
  });

  it("is given up when the consumer was rewound: the events are met again", async () => {
    const database = await setup();
    const mill = await database.connect();
    const half = signal();
    const books = consumer("books", {
      handle: async (event, context) => {
        await recordHandled(event, context);
        if (event.position === 50n) half.give();
      },
    });
    await appendEvents(mill, 100);
    await mill.startWorker({ consumers: [books], ...STEADY, batchSize: 10, batchPause: 5 });
    await half.given;
    await mill.consumers.rewind("books", { to: 20n });
    await mill.waitFor(books, { position: 100n });
    const positions = (await readHandled(database.pool)).map((row) => Number(row.position));
    const turned = positions.findIndex((position, index) => position < (positions[index - 1] ?? 0));
    const from = (first: number, last: number): number[] =>
      Array.from({ length: last - first + 1 }, (_, index) => first + index);
    expect(turned).toBeGreaterThanOrEqual(50);
    expect(positions.slice(0, turned)).toEqual(from(1, turned));
    expect(positions.slice(turned)).toEqual(from(21, 100));
  });

  it("is not begun by a worker that lost the consumer, and its checkpoint stays", async () => {
    const database = await setup();
    const mill = await database.connect();
    const books = recording("books");
    const worker = await mill.startWorker({ consumers: [books], ...STEADY });
    await appendEvents(mill, 3);
    await mill.waitFor(books, { position: 3n });
    const other = "00000000-0000-4000-8000-000000000001";
    await database.pool.query(
      "INSERT INTO tidemill.worker_nodes (worker_id, heartbeat_at) VALUES ($1, now() + '1 hour')",
      [other],
    );
    await database.pool.query("UPDATE tidemill.consumer_assignments SET worker_id = $1", [other]);
    await appendEvents(mill, 3);
    await eventually(() => expect(worker.assigned).toEqual([]));
    expect((await statusOf(mill, "books")).checkpoint).toBe(3n);
    expect(await readHandled(database.pool)).toHaveLength(3);
  });

  it("that runs keeps the consumer: nobody else gets it before it ends", async () => {
    const database = await setup();
    const mill = await database.connect();
    const entered = signal();
    const goOn = signal();
    const books = consumer("books", {
      handle: async (event, context) => {
        await recordHandled(event, context);
        entered.give();
        await goOn.given;
      },
    });
    const first = await mill.startWorker({ consumers: [books], ...STEADY });
    await appendEvents(mill, 1);
    await entered.given;
    const second = await mill.startWorker({ consumers: [books], ...STEADY });
    const stopping = first.stop();
    const row = database.pool.query("SELECT FROM tidemill.consumer_assignments FOR UPDATE NOWAIT");
    await expect(row).rejects.toMatchObject({ code: "55P03" });
    goOn.give();
    await stopping;
    await appendEvents(mill, 1);
    await mill.waitFor(books, { position: 2n });
    const handled = await readHandled(database.pool);
    expect(handled.map((one) => one.worker)).toEqual([first.id, second.id]);
  });

  it("that hangs is interrupted by a stop that waited long enough, uncounted", async () => {
    const database = await setup();
    const mill = await database.connect();
    const entered = signal();
    let isHanging = true;
    const books = consumer("books", {
      handle: async (event, context) => {
        await recordHandled(event, context);
        entered.give();
        if (isHanging) await new Promise(() => {});
      },
    });
    const options = { consumers: [books], ...STEADY, maxConsecutiveFailures: 1, drainTimeout: 100 };
    const first = await mill.startWorker(options);
    await appendEvents(mill, 1);
    await entered.given;
    await first.stop();
    expect(await readHandled(database.pool)).toEqual([]);
    isHanging = false;
    await mill.startWorker(options);
    await mill.waitFor(books, { position: 1n });
    await expectOnceInOrder(database.pool, "books", [1n]);
  });
});

describe("the options of a batch", () => {
  async function handledAt(options: Partial<WorkerOptions>, count: number): Promise<number[]> {
    const database = await setup();
    const mill = await database.connect();
    const times: number[] = [];
    const books: Consumer = consumer("books", { handle: () => void times.push(performance.now()) });
    await appendEvents(mill, count);
    await mill.runToHead({ consumers: [books], ...STEADY, ...options });
    return times.slice(1).map((time, index) => time - (times[index] ?? 0));
  }

  it("batchPause keeps a rest between batches of a consumer that has more to do", async () => {
    const rests = await handledAt({ batchSize: 1, batchPause: 150 }, 4);
    // Timers of Node may fire a millisecond early.
    for (const rest of rests) expect(rest).toBeGreaterThanOrEqual(149);
  });

  it("batchSize and batchPause leave the events of one batch together", async () => {
    const rests = await handledAt({ batchSize: 2, batchPause: 1_000 }, 4);
    expect(rests.map((rest) => rest >= 999)).toEqual([false, true, false]);
  });

  it("batchTimeout ends a batch that takes longer, not one that takes almost as long", async () => {
    const database = await setup();
    const mill = await database.connect();
    let attempts = 0;
    const books = consumer("books", {
      handle: async (event, context) => {
        attempts += 1;
        await context.tx.query("SELECT pg_sleep($1)", [attempts === 1 ? 60 : 0.1]);
        await recordHandled(event, context);
      },
    });
    await appendEvents(mill, 1);
    await mill.runToHead({ consumers: [books], ...STEADY, batchTimeout: 2_000 });
    expect(attempts).toBe(2);
    await expectOnceInOrder(database.pool, "books", [1n]);
  });
});
