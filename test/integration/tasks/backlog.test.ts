import { describe, expect, it } from "vitest";
import { statement } from "../../../src/db/statement.ts";
import { queue, type Tidemill } from "../../../src/index.ts";
import { type TestDatabase, testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { flushStatistics } from "../../support/statistics.ts";
import { type KeyOwner, olderTransactionsEnded, ownAll } from "./key-owner.ts";
import { BRISK, range, readColumn } from "./scene.ts";

/*
 * One key may have a long backlog: because it is held, or because its tasks come faster than they
 * run one after another. The others of its bucket are behind it in the same lane.
 */

const orders = queue<number>("orders");
const BACKLOG = 20_000;

/** The same bucket as "long", found by trying. */
async function neighbour(database: TestDatabase): Promise<string> {
  const [key] = await readColumn<string>(
    database,
    `SELECT 'other:' || n FROM generate_series(1, 100000) AS n
      WHERE tidemill.bucket_of('other:' || n) = tidemill.bucket_of('long') LIMIT 1`,
  );
  return key ?? "";
}

/** Ids in order. */
async function enqueueMany(mill: Tidemill, key: string, count: number): Promise<string[]> {
  const tasks = range(count).map((payload) => ({ payload, partitionKey: key }));
  const ids: string[] = [];
  while (tasks.length > 0) {
    const some = await mill.enqueueMany(orders, tasks.splice(0, 5_000));
    ids.push(...some.map(({ id }) => id));
  }
  return ids;
}

/** How many rows of tasks the owner's session reads meanwhile. */
async function rowsRead(
  database: TestDatabase,
  { session }: KeyOwner,
  work: () => Promise<unknown>,
): Promise<number> {
  const read = async (): Promise<number> => {
    await flushStatistics(database.pool, (text) => session.query(statement("test_flush", text)));
    const [count] = await readColumn<number>(
      database,
      `SELECT idx_tup_fetch::int FROM pg_stat_user_tables
        WHERE relid = 'tidemill.tasks'::regclass`,
    );
    return count ?? 0;
  };
  const before = await read();
  await work();
  return (await read()) - before;
}

/** As a claimer does: the numbers that a look saw are settled by an epoch that the next closes. */
async function lookAround(database: TestDatabase, owner: KeyOwner): Promise<void> {
  const { keys, settling, session } = owner;
  await keys.look();
  await settling.open(session);
  await olderTransactionsEnded(database);
  await keys.look();
}

describe("a long backlog of a key that is held", () => {
  const setUp = async (): Promise<{
    database: TestDatabase;
    mill: Tidemill;
    owner: KeyOwner;
    long: string[];
    other: string;
  }> => {
    const database = await testDatabase();
    const mill = await database.connect();
    const long = await enqueueMany(mill, "long", BACKLOG);
    await mill.queues.pauseKey("orders", "long");
    const handler = orders.handle(() => undefined);
    const owner = await ownAll(database, handler);
    await lookAround(database, owner);
    return { database, mill, owner, long, other: await neighbour(database) };
  };

  it("is not read by each look and claim of its bucket", async () => {
    const { database, mill, owner, other } = await setUp();
    for (const n of range(3)) {
      const { id } = await mill.enqueue(orders, n, { partitionKey: other });
      const rows = await rowsRead(database, owner, async () => {
        await owner.keys.look();
        expect(await owner.claim()).toEqual([id]);
      });
      expect(rows).toBeLessThan(1_000);
    }
  });

  it("comes first when it flows again, also before anybody said so", async () => {
    const { database, mill, owner, long, other } = await setUp();
    const { id } = await mill.enqueue(orders, 1, { partitionKey: other });
    await enqueueMany(mill, "long", 10);
    await owner.keys.look();
    await database.pool.query("DELETE FROM tidemill.key_holds");
    const claimed = await owner.claim();
    expect(claimed.length).toBeGreaterThan(10);
    expect(claimed).toEqual(long.slice(0, claimed.length));
    expect(claimed).not.toContain(id);
  });
});

describe("a long backlog of a key that flows", () => {
  it("runs without a pause, and others of its bucket do not wait for it", async () => {
    const database = await testDatabase();
    const mill = await database.connect();
    const other = await neighbour(database);
    const long = await enqueueMany(mill, "long", 3_000);
    const { id } = await mill.enqueue(orders, 1, { partitionKey: other });
    const ran: string[] = [];
    await mill.startWorker({
      ...BRISK,
      handlers: [orders.handle((task) => void ran.push(task.id))],
    });
    // Nobody announces anything: a worker that stands still does so until it polls.
    await eventually(() => expect(ran).toHaveLength(long.length + 1), { timeoutMs: 25_000 });
    expect(ran.filter((one) => one !== id)).toEqual(long);
    expect(ran.indexOf(id)).toBeLessThan(long.length - 500);
  });
});
