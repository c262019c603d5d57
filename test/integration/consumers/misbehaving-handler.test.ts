import { describe, expect, it } from "vitest";
import { type Consumer, consumer, type EventHandler, type Tidemill } from "../../../src/index.ts";
import { type TestDatabase, testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { createHandled, readHandled, recordHandled, STEADY, statusOf } from "./handled.ts";

const LIMIT = 2;
const POISON = 3n;
/** For what never ends; a busy machine handles the others in less. */
const BRIEF_MS = 1_000;

interface Quarantined {
  readonly database: TestDatabase;
  readonly mill: Tidemill;
  readonly error: string;
}

/** Six events; the third is handled by `misdeed`. Ends when the consumer is quarantined there. */
async function quarantinedBy(misdeed: EventHandler, batchTimeout = 5_000): Promise<Quarantined> {
  const database = await testDatabase();
  await createHandled(database);
  await database.pool.query("CREATE TABLE strict (n INT UNIQUE DEFERRABLE INITIALLY DEFERRED)");
  const mill = await database.connect();
  const books: Consumer = consumer("books", {
    handle: async (event, context) => {
      await recordHandled(event, context);
      if (event.position === POISON) await misdeed(event, context);
    },
  });
  await mill.append(
    { type: "Order", id: "1" },
    Array.from({ length: 6 }, () => ({ type: "Step" })),
  );
  const worker = mill.worker({
    consumers: [books],
    ...STEADY,
    maxConsecutiveFailures: LIMIT,
    batchTimeout,
  });
  const stop = new AbortController();
  const running = worker.start(stop.signal);
  const poison = await Promise.race([
    running.then(() => expect.fail("the worker ended")),
    eventually(async () => {
      const found = await statusOf(mill, "books");
      expect(found.poison?.position).toBe(POISON);
      expect(found.checkpoint).toBe(POISON - 1n);
      return found.poison;
    }),
  ]);
  const handled = await readHandled(database.pool);
  expect(handled.map((row) => row.position)).toEqual([1n, 2n]);
  stop.abort();
  await running;
  return { database, mill, error: poison?.error ?? "" };
}

describe("a handler is stopped at the event, with all before it committed, when it", () => {
  it("swallows the error of a statement", async () => {
    const { error } = await quarantinedBy(async (_, { tx }) => {
      await tx.query("SELECT 1 / 0").catch(() => {});
    });
    expect(error).toBe("the handler ignored the error of a statement in its transaction");
  });

  it("rolls the batch back itself", async () => {
    const { error } = await quarantinedBy((_, { tx }) => tx.query("ROLLBACK"));
    expect(error).toBe(
      "the handler ended the batch's transaction; it must not commit or roll back",
    );
  });

  it("does not await a statement that fails", async () => {
    const { error } = await quarantinedBy((_, { tx }) => void tx.query("SELECT 1 / 0"));
    expect(error).toMatch(/division by zero|aborted|not awaited/);
  });

  it("breaks a constraint that is checked at commit", async () => {
    // The error appears only when all six were handled, yet it is the third that is found.
    const { error } = await quarantinedBy((_, { tx }) =>
      tx.query("INSERT INTO strict VALUES (1), (1)"),
    );
    expect(error).toContain("strict_n_key");
  });

  it("never ends, and then its signal aborts", async () => {
    const aborted: unknown[] = [];
    const hang: EventHandler = (_, { signal }) =>
      new Promise(() => {
        signal.addEventListener("abort", () => aborted.push(signal.reason));
      });
    const { error } = await quarantinedBy(hang, BRIEF_MS);
    expect(error).toBe("the batch took longer than batchTimeout (1000 ms)");
    expect(aborted.length).toBeGreaterThanOrEqual(LIMIT);
  });

  it("sleeps in the database", async () => {
    const { error } = await quarantinedBy((_, { tx }) => tx.query("SELECT pg_sleep(60)"), BRIEF_MS);
    expect(error).toMatch(/batchTimeout|statement timeout/);
  });

  it("waits for a lock that nobody releases", async () => {
    const { error } = await quarantinedBy(async (_, { tx }) => {
      await tx.query("SELECT pg_sleep(60) FROM pg_advisory_xact_lock(1)");
    }, BRIEF_MS);
    expect(error).toMatch(/batchTimeout|statement timeout/);
  });
});

describe("a handler", () => {
  it("that is too slow for all events of a batch commits what it has done", async () => {
    const database = await testDatabase();
    await createHandled(database);
    const mill = await database.connect();
    let calls = 0;
    const books = consumer("books", {
      handle: async (event, context) => {
        calls += 1;
        await recordHandled(event, context);
        await context.tx.query("SELECT pg_sleep(0.2)");
      },
    });
    const events = Array.from({ length: 20 }, () => ({ type: "Step" }));
    await mill.append({ type: "Order", id: "1" }, events);
    const options = { ...STEADY, batchTimeout: 3_000, maxConsecutiveFailures: 1 };
    await mill.runToHead({ consumers: [books], ...options });
    const handled = await readHandled(database.pool);
    const positions = handled.map((row) => Number(row.position));
    expect(positions).toEqual(Array.from({ length: 20 }, (_, index) => index + 1));
    expect(calls).toBe(20); // Nothing was handled in vain.
    expect(new Set(handled.map((row) => row.batch)).size).toBeLessThan(20);
  });

  it("may send several statements in one text", async () => {
    const database = await testDatabase();
    const mill = await database.connect();
    await database.pool.query("CREATE TABLE counted (n INT)");
    const books = consumer("books", {
      handle: (_, { tx }) =>
        tx.query("INSERT INTO counted VALUES (1); INSERT INTO counted VALUES (2)"),
    });
    await mill.append({ type: "Order", id: "1" }, [{ type: "Step" }]);
    await mill.runToHead({ consumers: [books], ...STEADY, maxConsecutiveFailures: 1 });
    expect((await database.pool.query("SELECT n FROM counted ORDER BY n")).rows).toHaveLength(2);
  });

  it("that commits the batch itself is stopped, and told so", async () => {
    const database = await testDatabase();
    const mill = await database.connect();
    const books = consumer("books", { handle: (_, { tx }) => tx.query("COMMIT") });
    await mill.startWorker({ consumers: [books], ...STEADY, maxConsecutiveFailures: LIMIT });
    const { position } = await mill.append({ type: "Order", id: "1" }, [{ type: "Step" }]);
    await expect(mill.waitFor(books, { position })).rejects.toThrow("quarantined");
    expect(await statusOf(mill, "books")).toMatchObject({
      checkpoint: 0n,
      poison: { position, error: expect.stringContaining("must not commit") as string },
    });
  });

  it("may leave a statement unawaited that succeeds: it belongs to the batch", async () => {
    const database = await testDatabase();
    await createHandled(database);
    const mill = await database.connect();
    const books = consumer("books", {
      handle: (event, context) => void recordHandled(event, context),
    });
    const events = Array.from({ length: 20 }, () => ({ type: "Step" }));
    await mill.append({ type: "Order", id: "1" }, events);
    await mill.runToHead({ consumers: [books], ...STEADY });
    expect(await readHandled(database.pool)).toHaveLength(20);
  });

  it("cannot use the transaction after its batch has ended", async () => {
    const database = await testDatabase();
    const mill = await database.connect();
    const late: Promise<unknown>[] = [];
    const books = consumer("books", {
      handle: (event, { tx }) => {
        if (event.position > 1n) return;
        late.push(
          mill.waitFor("books", { position: 1n }).then(() => tx.query("SELECT 'too late'")),
        );
        for (const one of late) one.catch(() => {});
      },
    });
    await mill.append({ type: "Order", id: "1" }, [{ type: "Step" }]);
    await mill.runToHead({ consumers: [books], ...STEADY });
    await expect(late[0]).rejects.toThrow("await every query in the handler");
  });

  it("may return a query builder, which is awaited like a promise", async () => {
    const database = await testDatabase();
    await createHandled(database);
    const mill = await database.connect();
    /** Runs when it is awaited, as the builders of query libraries do. */
    class Builder {
      readonly #run: () => Promise<void>;

      constructor(run: () => Promise<void>) {
        this.#run = run;
      }

      // oxlint-disable-next-line unicorn/no-thenable
      then(resolve: () => void, reject: (error: unknown) => void): void {
        this.#run().then(resolve, reject);
      }
    }
    const books = consumer("books", {
      handle: (event, context) => new Builder(() => recordHandled(event, context)),
    });
    await mill.append({ type: "Order", id: "1" }, [{ type: "Step" }]);
    await mill.runToHead({ consumers: [books], ...STEADY });
    expect(await readHandled(database.pool)).toHaveLength(1);
  });
});
