import type pg from "pg";
import { describe, expect, it } from "vitest";
import { consumer, type Tidemill } from "../../../src/index.ts";
import { testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { STEADY } from "./handled.ts";

/** Nothing but a wake-up can be the reason that an event is handled soon. */
const NEVER = 30_000;
const CHANNEL = "worker_events";

async function sleepingWorker(dispatcherStrategy: "notify" | "poll", dispatcherInterval = NEVER) {
  const database = await testDatabase();
  const mill = await database.connect();
  const waiting = new Map<bigint, () => void>();
  const handled = new Set<bigint>();
  const books = consumer("books", {
    handle: ({ position }) => {
      handled.add(position);
      waiting.get(position)?.();
    },
  });
  await mill.startWorker({
    consumers: [books],
    ...STEADY,
    batchPause: 0,
    pollInterval: NEVER,
    maxPollInterval: NEVER,
    dispatcherStrategy,
    dispatcherInterval,
  });
  const first = await mill.append({ type: "Order", id: "0" }, [{ type: "Step" }]);
  await mill.waitFor(books, first);
  /** Resolves when the event is handled. */
  const untilHandled = async (position: bigint): Promise<void> => {
    if (handled.has(position)) return;
    await new Promise<void>((resolve) => waiting.set(position, resolve));
  };
  return { database, mill, books, untilHandled };
}

async function worstOf(
  count: number,
  append: (index: number) => Promise<bigint>,
  untilHandled: (position: bigint) => Promise<void>,
): Promise<number> {
  let worst = 0;
  for (let index = 0; index < count; index += 1) {
    const position = await append(index);
    const appendedAt = performance.now();
    await untilHandled(position);
    worst = Math.max(worst, performance.now() - appendedAt);
  }
  return worst;
}

/** The consumer of this worker that waits for events which nobody appended. */
async function holdsItsConsumer(session: pg.Client): Promise<boolean> {
  const { rows } = await session.query(
    "SELECT FROM tidemill.consumer_assignments FOR UPDATE SKIP LOCKED",
  );
  return rows.length === 0;
}

const appendOne = async (mill: Tidemill, index: number): Promise<bigint> =>
  (await mill.append({ type: "Order", id: String(index % 9) }, [{ type: "Step" }])).position;

describe("no wake-up is lost", () => {
  it("of 500 appends by another connection, each after the one before was handled", async () => {
    const { database, untilHandled } = await sleepingWorker("notify");
    const other = await database.connect({ notifyChannel: CHANNEL });
    const worst = await worstOf(500, (index) => appendOne(other, index), untilHandled);
    expect(worst).toBeLessThan(1_000);
  });

  it("of 100 appends in transactions of the caller", async () => {
    const { database, untilHandled } = await sleepingWorker("notify");
    const other = await database.connect({ notifyChannel: CHANNEL });
    const append = (index: number): Promise<bigint> =>
      other.transaction(async (tx) => {
        const stream = { type: "Order", id: String(index % 9) };
        return (await other.append(stream, [{ type: "Step" }], { tx })).position;
      });
    expect(await worstOf(100, append, untilHandled)).toBeLessThan(1_000);
  });

  it("of 100 appends by the worker's own connection, without LISTEN", async () => {
    const { mill, untilHandled } = await sleepingWorker("poll");
    const worst = await worstOf(100, (index) => appendOne(mill, index), untilHandled);
    expect(worst).toBeLessThan(1_000);
  });

  it("by one that told of nothing: it lets go of its locks, and the next is handled", async () => {
    const { database, mill, untilHandled } = await sleepingWorker("notify");
    const session = await database.session();
    for (let time = 0; time < 50; time += 1) await session.query(`NOTIFY ${CHANNEL}`);
    await eventually(async () => expect(await holdsItsConsumer(session)).toBe(false));
    await untilHandled(await appendOne(mill, 1));
  });

  it("of a burst that is appended while the consumer is busy", async () => {
    const { database, books, mill } = await sleepingWorker("notify");
    const other = await database.connect({ notifyChannel: CHANNEL, poolSize: 20 });
    const positions = await Promise.all(
      Array.from({ length: 500 }, (_, index) => appendOne(other, index)),
    );
    const position = positions.reduce((a, b) => (a > b ? a : b));
    await mill.waitFor(books, { position }, { timeoutMs: 5_000 });
  });

  it("that no notification told: the worker looks for itself every second", async () => {
    const { database, untilHandled } = await sleepingWorker("notify");
    const silent = await database.connect();
    const worst = await worstOf(2, (index) => appendOne(silent, index), untilHandled);
    expect(worst).toBeLessThan(2_000);
  });

  it("of appends by another connection, when the dispatcher polls", async () => {
    const { database, untilHandled } = await sleepingWorker("poll", 20);
    const silent = await database.connect();
    const worst = await worstOf(20, (index) => appendOne(silent, index), untilHandled);
    expect(worst).toBeLessThan(1_000);
  });
});
