import { describe, expect, it } from "vitest";
import { IdempotencyConflictError, queue, type Tidemill } from "../../../src/index.ts";
import { type TestDatabase, testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { BRISK, gate, inTransaction, range, readColumn, readStored } from "./scene.ts";

const MAILS = queue("mails");
const ONCE = { idempotencyKey: "once" } as const;

async function scene(): Promise<{ database: TestDatabase; mill: Tidemill }> {
  const database = await testDatabase();
  return { database, mill: await database.connect() };
}

/** As if the window of every key had run out. */
async function expireKeys({ pool }: TestDatabase): Promise<void> {
  await pool.query("UPDATE tidemill.task_idempotency SET expires_at = NOW() - INTERVAL '1 second'");
}

describe("the same idempotency key", () => {
  it("with the same task gives the first one, while it waits and after it ended", async () => {
    const { database, mill } = await scene();
    const options = { ...ONCE, kind: "k", priority: 7, partitionKey: "key", delaySeconds: 0.1 };
    const first = await mill.enqueue(MAILS, { to: "ada" }, options);
    const second = await mill.enqueue(MAILS, { to: "ada" }, options);
    expect(second.id).toBe(first.id);
    expect(await readStored(database)).toEqual({ tasks: 1, tally: 1, keys: 1 });
    await mill.startWorker({ ...BRISK, handlers: [MAILS.handle(() => undefined)] });
    await first.result();
    const third = await mill.enqueue(MAILS, { to: "ada" }, options);
    expect(third.id).toBe(first.id);
    expect(await readStored(database)).toMatchObject({ tasks: 0, tally: 0 });
  });

  it("with anything else is a conflict, and stores nothing", async () => {
    const { database, mill } = await scene();
    await mill.enqueue(MAILS, { n: 1 }, ONCE);
    const others = [
      () => mill.enqueue(MAILS, { n: 2 }, ONCE),
      () => mill.enqueue(MAILS, { n: 1 }, { ...ONCE, kind: "k" }),
      () => mill.enqueue(MAILS, { n: 1 }, { ...ONCE, priority: 1 }),
      () => mill.enqueue(MAILS, { n: 1 }, { ...ONCE, partitionKey: "key" }),
      () => mill.enqueue(MAILS, { n: 1 }, { ...ONCE, delaySeconds: 1 }),
      () => mill.enqueue(MAILS, { n: 1 }, { ...ONCE, maxAttempts: 1 }),
      () => mill.enqueue(queue("letters"), { n: 1 }, ONCE),
    ];
    for (const enqueue of others) {
      const other = enqueue();
      await expect(other).rejects.toThrow(IdempotencyConflictError);
      await expect(other).rejects.toThrow(
        'idempotency key "once" was used for another task: the queue, the payload or an option',
      );
    }
    expect(await readStored(database)).toEqual({ tasks: 1, tally: 1, keys: 1 });
  });

  it("of another tenant is another key", async () => {
    const { database, mill } = await scene();
    const first = await mill.enqueue(MAILS, 1, { ...ONCE, tenant: "a" });
    const second = await mill.enqueue(MAILS, 2, { ...ONCE, tenant: "b" });
    const again = await mill.enqueue(MAILS, 1, { ...ONCE, tenant: "a" });
    expect(second.id).not.toBe(first.id);
    expect(again.id).toBe(first.id);
    expect(await readStored(database)).toEqual({ tasks: 2, tally: 2, keys: 2 });
  });

  it("is free again when its window is over, for one of many", async () => {
    const { database, mill } = await scene();
    const first = await mill.enqueue(MAILS, 1, { ...ONCE, idempotencySeconds: 60 });
    const [window] = await readColumn<string>(
      database,
      "SELECT extract(epoch FROM expires_at - created_at)::int FROM tidemill.task_idempotency",
    );
    expect(window).toBe(60);
    await expireKeys(database);
    const again = await Promise.all(range(8).map(() => mill.enqueue(MAILS, 2, ONCE)));
    const ids = new Set(again.map(({ id }) => id));
    expect(ids.size).toBe(1);
    expect(ids.has(first.id)).toBe(false);
    expect(await readStored(database)).toEqual({ tasks: 2, tally: 2, keys: 1 });
  });

  it("from twenty callers at once makes one task", async () => {
    const { database, mill } = await scene();
    const others = await Promise.all(range(3).map(() => database.connect()));
    const mills = [mill, ...others];
    const handles = await Promise.all(
      range(20).map((n) => (mills[n % 4] ?? mill).enqueue(MAILS, { n: 1 }, ONCE)),
    );
    expect(new Set(handles.map(({ id }) => id)).size).toBe(1);
    expect(await readStored(database)).toEqual({ tasks: 1, tally: 1, keys: 1 });
  });

  it("from bulks with the same keys in other orders makes each task once", async () => {
    const { database, mill } = await scene();
    const bulk = (order: readonly number[]) =>
      order.map((n) => ({ payload: n, idempotencyKey: `key:${n}` }));
    const forth = range(200);
    const back = forth.toReversed();
    const bulks = await Promise.all(
      [forth, back, forth, back].map((order) => mill.enqueueMany(MAILS, bulk(order))),
    );
    const ids = bulks.map((handles) => handles.map(({ id }) => id));
    expect(ids[1]).toEqual(ids[0]?.toReversed());
    expect(ids[2]).toEqual(ids[0]);
    expect(new Set(ids.flat()).size).toBe(200);
    expect(await readStored(database)).toEqual({ tasks: 200, tally: 200, keys: 200 });
    const payloads = await readColumn<string>(
      database,
      "SELECT payload FROM tidemill.tasks ORDER BY payload::int",
    );
    expect(payloads).toEqual(range(200).map(String));
  });

  it("waits for a transaction that has it, and then is as if it had come later", async () => {
    const { database, mill } = await scene();
    const taken = gate();
    const release = gate();
    const first = inTransaction(database, "COMMIT", async (tx) => {
      const { id } = await mill.enqueue(MAILS, 1, { ...ONCE, tx });
      taken.open();
      await release.opened;
      return id;
    });
    await taken.opened;
    const second = mill.enqueue(MAILS, 1, ONCE);
    const other = mill.enqueue(MAILS, 2, ONCE).catch((error: unknown) => error);
    await eventually(async () => {
      const waiting = await readColumn<number>(
        database,
        `SELECT count(*)::int FROM pg_stat_activity
          WHERE datname = current_database() AND wait_event_type = 'Lock'`,
      );
      expect(waiting).toEqual([2]);
    });
    release.open();
    expect((await second).id).toBe(await first);
    expect(await other).toBeInstanceOf(IdempotencyConflictError);
    expect(await readStored(database)).toEqual({ tasks: 1, tally: 1, keys: 1 });
  });
});

describe("a bulk with idempotency keys", () => {
  it("stores a key that comes twice once, and gives both the same id", async () => {
    const { database, mill } = await scene();
    const [a, b, c, d] = await mill.enqueueMany(MAILS, [
      { payload: 1, idempotencyKey: "a" },
      { payload: 2 },
      { payload: 1, idempotencyKey: "a" },
      { payload: 3, idempotencyKey: "c" },
    ]);
    expect(c?.id).toBe(a?.id);
    expect(new Set([a?.id, b?.id, d?.id]).size).toBe(3);
    expect(await readStored(database)).toEqual({ tasks: 3, tally: 3, keys: 2 });
    const payloads = await readColumn(
      database,
      "SELECT payload FROM tidemill.tasks ORDER BY claim_order",
    );
    expect(payloads).toEqual(["1", "2", "3"]);
    const stored = await Promise.all([a, b, d].map((one) => mill.tasks.get(one?.id ?? "")));
    expect(stored.map(({ payload }) => payload)).toEqual([1, 2, 3]);
  });

  it("is refused whole when a key in it conflicts with another in it", async () => {
    const { database, mill } = await scene();
    const bulk = [
      { payload: 0 },
      { payload: 1, idempotencyKey: "a" },
      { payload: 2, idempotencyKey: "a" },
    ];
    await expect(mill.enqueueMany(MAILS, bulk)).rejects.toThrow(IdempotencyConflictError);
    expect(await readStored(database)).toEqual({ tasks: 0, tally: 0, keys: 0 });
  });

  it("is refused whole when a key in it was used before, also if the caller commits", async () => {
    const { database, mill } = await scene();
    await mill.enqueue(MAILS, 1, { idempotencyKey: "b" });
    const bulk = ["a", "b", "c"].map((idempotencyKey) => ({ payload: 2, idempotencyKey }));
    await expect(mill.enqueueMany(MAILS, bulk)).rejects.toThrow(IdempotencyConflictError);
    expect(await readStored(database)).toEqual({ tasks: 1, tally: 1, keys: 1 });
    await inTransaction(database, "COMMIT", async (tx) => {
      await mill.enqueue(MAILS, 9, { tx, idempotencyKey: "mine" });
      const refused = mill.enqueueMany(MAILS, bulk, { tx });
      await expect(refused).rejects.toThrow(IdempotencyConflictError);
    });
    expect(await readStored(database)).toEqual({ tasks: 2, tally: 2, keys: 2 });
    const again = await mill.enqueue(MAILS, 2, { idempotencyKey: "a" });
    expect((await mill.tasks.get(again.id)).payload).toBe(2);
  });
});

describe("an idempotency key in SQL", () => {
  it("gives the first task again, and is refused for another", async () => {
    const { database, mill } = await scene();
    await mill.enqueue(MAILS, 0, { delaySeconds: 60 });
    const call = "SELECT tidemill.enqueue('mails', $1, idempotency_key => 'once')";
    const [first] = await readColumn<string>(database, call, ['{"n":1}']);
    const [second] = await readColumn<string>(database, call, ['{"n":1}']);
    expect(second).toBe(first);
    await expect(database.pool.query(call, ['{"n":2}'])).rejects.toMatchObject({
      code: "23505",
      message: 'idempotency key "once" was used for another task',
    });
    expect(await readStored(database)).toEqual({ tasks: 2, tally: 2, keys: 1 });
    await expireKeys(database);
    const [third] = await readColumn<string>(database, call, ['{"n":2}']);
    expect(third).not.toBe(first);
    expect(await readStored(database)).toEqual({ tasks: 3, tally: 3, keys: 1 });
  });
});
