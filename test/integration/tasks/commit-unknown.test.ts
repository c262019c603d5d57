import type pg from "pg";
import { expect, it } from "vitest";
import type { TaskHandle } from "../../../src/index.ts";
import { type TestDatabase, testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { keyFaults } from "../../support/task-order.ts";
import type { TaskOrder } from "../../support/task-process.ts";
import { QUICK, startTaskProcess } from "../../support/task-processes.ts";
import { type LossyProxy, startLossyProxy } from "../../support/task-proxy.ts";
import {
  createRuns,
  eventuallyDone,
  expectCompletedOnce,
  orders,
  readRuns,
  startLeader,
} from "../../support/task-runs.ts";

const ORDERS = orders();
const CUTS = 20;

/** Ends the sessions on which workers claim and complete. How many there were. */
async function cutTaskConnections(pool: pg.Pool): Promise<number> {
  const { rowCount } = await pool.query(
    `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
      WHERE datname = current_database() AND application_name LIKE '%tasks'`,
  );
  return rowCount ?? 0;
}

const countEnded = async (pool: pg.Pool): Promise<number> => {
  const { rows } = await pool.query<{ n: number }>(
    "SELECT count(*)::int AS n FROM tidemill.task_history",
  );
  return rows[0]?.n ?? 0;
};

/**
 * By turns the server ends the session, and the answer to something done is lost. Enqueues as often
 * as it takes that there is always something to do, and gives the ids of all.
 */
async function cutUnderLoad(
  { pool }: TestDatabase,
  proxy: LossyProxy,
  enqueue: () => Promise<readonly TaskHandle[]>,
): Promise<string[]> {
  const ids: string[] = [];
  let cuts = 0;
  let ended = 0;
  while (cuts < CUTS) {
    const seen = ended;
    if (ended === ids.length) ids.push(...(await enqueue()).map(({ id }) => id));
    ended = await eventually(
      async () => {
        const now = await countEnded(pool);
        expect(now).toBeGreaterThan(seen);
        return now;
      },
      { everyMs: 2 },
    );
    if (ended === ids.length) continue;
    const cut = cuts % 2 === 0 ? proxy.loseNextAnswers() : await cutTaskConnections(pool);
    if (cut > 0) cuts += 1;
  }
  return ids;
}

async function newDatabase(): Promise<TestDatabase> {
  const database = await testDatabase();
  await createRuns(database);
  await startLeader(database);
  return database;
}

it("completes every task exactly once while its connections are cut again and again", async () => {
  const database = await newDatabase();
  const { pool } = database;
  const mill = await database.connect();
  const tasks = Array.from({ length: 2_500 }, (): { payload: TaskOrder } => ({
    payload: { act: "work" },
  }));
  // A lease that outlasts the test: what is lost shows as lost, not as reaped.
  const options = { concurrency: 50, leaseSeconds: 60 };
  const proxy = await startLossyProxy(database.url);
  const { url } = proxy;
  await Promise.all([
    startTaskProcess({ url, queue: "orders", options }),
    startTaskProcess({ url, queue: "orders", options }),
  ]);
  const ids = await cutUnderLoad(database, proxy, () => mill.enqueueMany(ORDERS, tasks));
  await eventuallyDone(database, ids.length);
  await expectCompletedOnce(pool, ids);
  // A claim that was not answered is given back uncounted, and no handler ran twice for it.
  const runs = await readRuns(pool);
  expect(runs.length).toBe(ids.length);
  expect(new Set(runs.map((run) => run.attempt))).toEqual(new Set([1]));
});

it("keeps the order of keys while its connections are cut again and again", async () => {
  const database = await newDatabase();
  const { pool } = database;
  const mill = await database.connect();
  const tasks = Array.from({ length: 2_400 }, (_, index) => ({
    payload: { n: Math.floor(index / 60), act: "work" } as TaskOrder,
    partitionKey: `order:${index % 60}`,
  }));
  const options = { concurrency: 50, leaseSeconds: 60 };
  const proxy = await startLossyProxy(database.url);
  const { url } = proxy;
  await Promise.all([
    startTaskProcess({ url, queue: "orders", options }),
    startTaskProcess({ url, queue: "orders", options }),
  ]);
  const ids = await cutUnderLoad(database, proxy, () => mill.enqueueMany(ORDERS, tasks));
  await eventuallyDone(database, ids.length);
  await expectCompletedOnce(pool, ids);
  expect(await keyFaults(pool)).toEqual([]);
});

it("runs nothing of a key past a claim that the server made after the worker gave up", async () => {
  const database = await newDatabase();
  const { pool } = database;
  const mill = await database.connect();
  const hasty = await database.connect({ queryTimeout: 1_500 });
  const tasks = [1, 2, 3].map((n) => ({
    payload: { n, act: "work" } as TaskOrder,
    partitionKey: "order:1",
  }));
  const [head] = await mill.enqueueMany(ORDERS, tasks);
  const session = await database.session();
  await session.query("BEGIN");
  await session.query("SELECT FROM tidemill.tasks WHERE id = $1 FOR UPDATE", [head?.id]);
  const ran: number[] = [];
  const handler = ORDERS.handle((task) => {
    ran.push(task.payload.n ?? 0);
  });
  await hasty.startWorker({ ...QUICK, heartbeatTimeout: 20_000, handlers: [handler] });
  // One claim waits for the row on a connection that the worker has left, another on its new one.
  await eventually(async () => {
    const { rows } = await pool.query(
      `SELECT FROM pg_stat_activity
        WHERE datname = current_database() AND application_name LIKE '%tasks'
          AND wait_event_type = 'Lock'`,
    );
    expect(rows.length).toBeGreaterThan(1);
  });
  await session.query("COMMIT");
  await mill.enqueue(ORDERS, { n: 4, act: "work" }, { partitionKey: "order:1" });
  await eventuallyDone(database, tasks.length + 1);
  expect(ran).toEqual([1, 2, 3, 4]);
});
