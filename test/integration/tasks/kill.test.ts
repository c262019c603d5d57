import { randomUUID } from "node:crypto";
import { expect, it } from "vitest";
import type { QueueOptions } from "../../../src/index.ts";
import { readServerTime, readWorkerIds } from "../../support/cluster.ts";
import { type TestDatabase, testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { QUICK, startTaskProcess, type TaskProcess } from "../../support/task-processes.ts";
import {
  createRuns,
  eventuallyDone,
  expectCompletedOnce,
  orders,
  type Run,
  readFailures,
  readHistory,
  readRuns,
  startLeader,
} from "../../support/task-runs.ts";

const ORDERS = orders();
const RECOVERY_MS = QUICK.leaseSeconds * 1000 + 2_000;

async function newDatabase(): Promise<TestDatabase> {
  const database = await testDatabase();
  await createRuns(database);
  return database;
}

const startOne = (database: TestDatabase, queueOptions: QueueOptions = {}): Promise<TaskProcess> =>
  startTaskProcess({ url: database.url, queue: "orders", queueOptions });

/** Others know of the worker: it may get what is taken from one that is dead. */
async function isKnown({ pool }: TestDatabase, { ids }: TaskProcess): Promise<void> {
  await eventually(async () => expect(await readWorkerIds(pool)).toContain(ids[0]));
}

/** The task's second run, and how long after the kill it began, by the server's clock. */
async function killAndFollow(
  database: TestDatabase,
  { victim, heir }: { readonly victim: TaskProcess; readonly heir: TaskProcess },
  taskId: string,
): Promise<{ run: Run; afterMs: number }> {
  const { pool } = database;
  await isKnown(database, heir);
  const killedAt = await readServerTime(pool);
  victim.kill("SIGKILL");
  expect(await victim.ended).toBe(null);
  const run = await eventually(async () => {
    const [, second] = await readRuns(pool, taskId);
    if (second === undefined) throw new Error(`task ${taskId} has not run again`);
    return second;
  });
  return { run, afterMs: run.started.getTime() - killedAt.getTime() };
}

it("runs elsewhere within lease + 2 s when its worker is killed, and tells why", async () => {
  const database = await newDatabase();
  const { pool } = database;
  await startLeader(database);
  const mill = await database.connect();
  const { id } = await mill.enqueue(ORDERS, { act: "wait" });
  const victim = await startOne(database);
  await victim.heard("waiting");
  const heir = await startOne(database);
  const { run, afterMs } = await killAndFollow(database, { victim, heir }, id);
  expect(run).toMatchObject({ attempt: 2, generation: 2, worker: heir.ids[0] });
  expect(afterMs).toBeLessThan(RECOVERY_MS);
  heir.openGate();
  await eventuallyDone(database, 1);
  expect(await readHistory(pool, id)).toMatchObject([
    { state: "completed", attempt: 2, generation: 2, worker: heir.ids[0] },
  ]);
  expect(await readFailures(pool, id)).toMatchObject([
    {
      attempt: 1,
      outcome: "lost",
      reason: "its worker stopped renewing the lease",
      worker: victim.ids[0],
    },
  ]);
});

it("runs elsewhere within lease + 2 s when its worker is killed in the only slot", async () => {
  const database = await newDatabase();
  await startLeader(database);
  const mill = await database.connect();
  const options = { limits: { concurrency: 1 } };
  const { id } = await mill.enqueue(orders("orders", options), { act: "wait" });
  const victim = await startOne(database, options);
  await victim.heard("waiting");
  const heir = await startOne(database, options);
  const { run, afterMs } = await killAndFollow(database, { victim, heir }, id);
  expect(run).toMatchObject({ attempt: 2, worker: heir.ids[0] });
  expect(afterMs).toBeLessThan(RECOVERY_MS);
});

it("runs everything elsewhere within lease + 2 s that a killed worker held", async () => {
  const database = await newDatabase();
  const { pool } = database;
  await startLeader(database);
  const mill = await database.connect();
  const tasks = Array.from({ length: 20 }, () => ({ payload: { act: "wait" } as const }));
  const handles = await mill.enqueueMany(ORDERS, tasks);
  const options = { concurrency: 50 };
  const victim = await startTaskProcess({ url: database.url, queue: "orders", options });
  await eventually(async () => expect(await readRuns(pool)).toHaveLength(tasks.length));
  const next = { url: database.url, queue: "orders", options, isOpen: true };
  await isKnown(database, await startTaskProcess(next));
  const killedAt = await readServerTime(pool);
  victim.kill("SIGKILL");
  await eventuallyDone(database, tasks.length);
  await expectCompletedOnce(
    pool,
    handles.map((one) => one.id),
  );
  const again = (await readRuns(pool)).filter((run) => run.generation === 2);
  expect(again).toHaveLength(tasks.length);
  const lastMs = Math.max(...again.map((run) => run.started.getTime() - killedAt.getTime()));
  expect(lastMs).toBeLessThan(RECOVERY_MS);
});

// As if a worker had claimed each of them alone, and died; all of their leases end in a second.
const CLAIM_EACH = `
  WITH held AS (
    UPDATE tidemill.tasks
       SET state = 'running', attempt = 1, lease_generation = 1, claim_id = gen_random_uuid(),
           leased_by = $1, claimed_at = NOW(), lease_until = NOW() + INTERVAL '1 second'
    RETURNING id, claim_id, lease_until
  )
  INSERT INTO tidemill.task_claims (claim_id, worker_id, check_at, task_ids)
  SELECT claim_id, $1, lease_until, ARRAY[id] FROM held`;

it.each(["notify", "poll"] as const)(
  "takes 300 claims back within 2 s of the ends of their leases, told by %s",
  async (how) => {
    const database = await newDatabase();
    const { pool } = database;
    await startLeader(database, { dispatcherStrategy: how });
    const mill = await database.connect();
    const tasks = Array.from({ length: 300 }, () => ({ payload: { act: "work" } as const }));
    await Promise.all(tasks.map((task) => mill.enqueue(ORDERS, task.payload)));
    await pool.query(CLAIM_EACH, [randomUUID()]);
    const leaseUntil = (await readServerTime(pool)).getTime() + 1_000;
    await eventually(async () => expect(await readFailures(pool)).toHaveLength(tasks.length));
    const lastMs = Math.max(...(await readFailures(pool)).map((one) => one.at.getTime()));
    expect(lastMs - leaseUntil).toBeLessThan(2_000);
  },
);

it("runs elsewhere within lease + 2 s when the killed worker was the leader", async () => {
  const database = await newDatabase();
  const mill = await database.connect();
  const { id } = await mill.enqueue(ORDERS, { act: "wait" });
  const victim = await startOne(database);
  await victim.heard("waiting");
  // One that does not lead yet may have taken the task: the lead follows.
  await eventually(async () => {
    const { rows } = await database.pool.query("SELECT leader_id FROM tidemill.leader_term");
    expect(rows).toEqual([{ leader_id: victim.ids[0] }]);
  });
  const heir = await startOne(database);
  const { run, afterMs } = await killAndFollow(database, { victim, heir }, id);
  expect(run).toMatchObject({ attempt: 2, worker: heir.ids[0] });
  expect(afterMs).toBeLessThan(RECOVERY_MS);
});

it("runs a keyed task elsewhere, and those of its key only after it", async () => {
  const database = await newDatabase();
  const { pool } = database;
  await startLeader(database);
  const mill = await database.connect();
  const victim = await startOne(database);
  const tasks = await mill.enqueueMany(
    ORDERS,
    [1, 2, 3].map((n) => ({
      payload: { n, act: n === 1 ? "wait" : "work" } as const,
      partitionKey: "order:1",
    })),
  );
  const ids = tasks.map((task) => task.id);
  await victim.heard("waiting");
  const heir = await startOne(database);
  const { run, afterMs } = await killAndFollow(database, { victim, heir }, ids[0] ?? "");
  expect(run).toMatchObject({ n: 1, attempt: 2, worker: heir.ids[0] });
  expect(afterMs).toBeLessThan(RECOVERY_MS);
  // Enqueued while the head runs alone: it waits with the others.
  const late = await mill.enqueue(ORDERS, { n: 4, act: "work" }, { partitionKey: "order:1" });
  expect((await readRuns(pool)).map((one) => one.n)).toEqual([1, 1]);
  heir.openGate();
  await eventuallyDone(database, 4);
  expect((await readRuns(pool)).map((one) => one.n)).toEqual([1, 1, 2, 3, 4]);
  const history = await readHistory(pool);
  expect(history.map((one) => one.id)).toEqual([...ids, late.id]);
  const failures = await readFailures(pool, ids[0]);
  expect(failures).toMatchObject([{ attempt: 1, outcome: "lost", worker: victim.ids[0] }]);
});

it("keeps the order of claims, not of ids, when a worker is killed", async () => {
  const database = await newDatabase();
  const { pool } = database;
  await startLeader(database);
  const mill = await database.connect();
  const key = { partitionKey: "order:1" };
  // Due only when the next one is enqueued: it comes second, with the smaller id.
  const second = await mill.enqueue(ORDERS, { n: 2, act: "work" }, { ...key, delaySeconds: 600 });
  const first = await mill.enqueue(ORDERS, { n: 1, act: "wait" }, key);
  await mill.tasks.retry(second.id);
  const { rows } = await pool.query<{ id: string }>(
    "SELECT id FROM tidemill.tasks WHERE state = 'pending' ORDER BY claim_order",
  );
  expect(rows.map((row) => row.id)).toEqual([first.id, second.id]);
  const victim = await startOne(database);
  await victim.heard("waiting");
  await startTaskProcess({ url: database.url, queue: "orders", isOpen: true });
  victim.kill("SIGKILL");
  await eventuallyDone(database, 2);
  expect((await readRuns(pool)).map((one) => one.n)).toEqual([1, 1, 2]);
  expect((await readHistory(pool)).map((one) => one.id)).toEqual([first.id, second.id]);
});
