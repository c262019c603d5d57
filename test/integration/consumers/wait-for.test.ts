import { describe, expect, it } from "vitest";
import { consumer } from "../../../src/index.ts";
import { testDatabase } from "../../support/database.ts";
import {
  appendEvents,
  createHandled,
  expectOnceInOrder,
  readWorkerIds,
  recording,
  STEADY,
} from "./handled.ts";

const order = { type: "Order", id: "1" };

describe("waitFor", () => {
  it("resolves when the consumer has committed what was appended", async () => {
    const database = await testDatabase();
    await createHandled(database);
    const mill = await database.connect();
    const books = recording("books");
    await mill.startWorker({ consumers: [books], ...STEADY });
    for (let round = 1; round <= 5; round += 1) {
      const appended = await mill.append(order, [{ type: "Step" }]);
      await mill.waitFor(round % 2 === 0 ? "books" : books, appended);
      const { rows } = await database.pool.query("SELECT FROM handled");
      expect(rows).toHaveLength(round);
    }
  });

  it("rejects when the time is up, and says how far the consumer is", async () => {
    const database = await testDatabase();
    const mill = await database.connect();
    const books = consumer("books", { handle: () => {} });
    await (await mill.startWorker({ consumers: [books], ...STEADY })).stop();
    const { position } = await mill.append(order, [{ type: "Step" }]);
    const waiting = mill.waitFor(books, { position }, { timeoutMs: 100 });
    await expect(waiting).rejects.toMatchObject({
      code: "TM_TIMEOUT",
      retryable: true,
      message: "consumer books is at 0 and did not reach 1 in 100 ms",
    });
  });

  it("rejects when the consumer is quarantined below the position", async () => {
    const database = await testDatabase();
    const mill = await database.connect();
    const books = consumer("books", {
      handle: ({ position }) => {
        if (position === 2n) throw new Error("poison");
      },
    });
    await mill.startWorker({ consumers: [books], ...STEADY, maxConsecutiveFailures: 1 });
    const { positions } = await mill.append(order, [{ type: "A" }, { type: "B" }, { type: "C" }]);
    await expect(mill.waitFor(books, { position: positions[2] ?? 0n })).rejects.toMatchObject({
      code: "TM_CONFLICT",
      message: "consumer books is quarantined at 1 and will not reach 3",
    });
    await expect(mill.waitFor(books, { position: 1n })).resolves.toBeUndefined();
  });

  it("rejects when the consumer is paused below the position", async () => {
    const database = await testDatabase();
    const mill = await database.connect();
    const books = consumer("books", { handle: () => {} });
    await mill.startWorker({ consumers: [books], ...STEADY });
    await mill.consumers.pause("books", { reason: "moving house" });
    const appended = await mill.append(order, [{ type: "Step" }]);
    await expect(mill.waitFor(books, appended)).rejects.toThrow("books is paused at 0");
    await mill.consumers.resume("books");
    await mill.waitFor(books, appended);
  });

  it("rejects when the caller gives up", async () => {
    const database = await testDatabase();
    const mill = await database.connect();
    const books = consumer("books", { handle: () => {} });
    await (await mill.startWorker({ consumers: [books], ...STEADY })).stop();
    const appended = await mill.append(order, [{ type: "Step" }]);
    const abort = new AbortController();
    const waiting = mill.waitFor(books, appended, { signal: abort.signal });
    abort.abort(new Error("went home"));
    await expect(waiting).rejects.toThrow("went home");
  });

  it("rejects for a consumer that nobody ever ran", async () => {
    const mill = await (await testDatabase()).connect();
    await expect(mill.waitFor("nobody", { position: 1n })).rejects.toMatchObject({
      code: "TM_NOT_FOUND",
    });
  });
});

describe("runToHead", () => {
  it("handles what is there, returns its position, and leaves no worker behind", async () => {
    const database = await testDatabase();
    await createHandled(database);
    const mill = await database.connect();
    const positions = await appendEvents(mill, 30);
    const consumers = [recording("a"), recording("b", { partitions: 3 })];
    expect(await mill.runToHead({ consumers, ...STEADY })).toBe(30n);
    await expectOnceInOrder(database.pool, "a", positions);
    expect(await readWorkerIds(database.pool)).toEqual([]);
  });

  it("returns at once from an empty log", async () => {
    const mill = await (await testDatabase()).connect();
    expect(await mill.runToHead({ consumers: [recording("a")], ...STEADY })).toBe(0n);
  });

  it("goes on where the last run ended", async () => {
    const database = await testDatabase();
    await createHandled(database);
    const mill = await database.connect();
    const positions = await appendEvents(mill, 5);
    await mill.runToHead({ consumers: [recording("a")], ...STEADY });
    positions.push(...(await appendEvents(mill, 5)));
    await mill.runToHead({ consumers: [recording("a")], ...STEADY });
    await expectOnceInOrder(database.pool, "a", positions);
  });

  it("works beside a worker that owns the consumer", async () => {
    const database = await testDatabase();
    await createHandled(database);
    const mill = await database.connect();
    await mill.startWorker({ consumers: [recording("a")], ...STEADY });
    const positions = await appendEvents(mill, 20);
    await mill.runToHead({ consumers: [recording("a")], ...STEADY });
    await expectOnceInOrder(database.pool, "a", positions);
  });

  it("rejects when a consumer is quarantined on the way, and leaves no worker behind", async () => {
    const database = await testDatabase();
    const mill = await database.connect();
    await appendEvents(mill, 3);
    const sick = consumer("sick", {
      handle: () => {
        throw new Error("poison");
      },
    });
    const running = mill.runToHead({ consumers: [sick], ...STEADY, maxConsecutiveFailures: 1 });
    await expect(running).rejects.toThrow("quarantined at 0 and will not reach 3");
    expect(await readWorkerIds(database.pool)).toEqual([]);
  });
});
