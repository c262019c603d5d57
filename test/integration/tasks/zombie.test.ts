import { describe, expect, it } from "vitest";
import { type TestDatabase, testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import type { TaskOrder } from "../../support/task-process.ts";
import { type Message, startTaskProcess, type TaskProcess } from "../../support/task-processes.ts";
import { startLossyProxy } from "../../support/task-proxy.ts";
import {
  createRuns,
  eventuallyDone,
  expectCompletedOnce,
  orders,
  readHistory,
  readLive,
  readRuns,
  startLeader,
} from "../../support/task-runs.ts";

const ORDERS = orders();

interface Scene {
  readonly database: TestDatabase;
  readonly taskId: string;
  /** Paused while its handler runs, past its lease. */
  readonly zombie: TaskProcess;
  /** Runs the task meanwhile. */
  readonly heir: TaskProcess;
  /** What the zombie was told when it claimed the task. */
  readonly claim: Message;
}

/** The zombie is still paused; the heir's handler waits in generation 2. */
async function pauseHolder(act: "wait" | "complete-in-transaction"): Promise<Scene> {
  const database = await testDatabase();
  await createRuns(database);
  await startLeader(database);
  const mill = await database.connect();
  const { id: taskId } = await mill.enqueue(ORDERS, { act });
  const zombie = await startTaskProcess({ url: database.url, queue: "orders" });
  const claim = await zombie.heard("waiting");
  zombie.kill("SIGSTOP");
  const heir = await startTaskProcess({ url: database.url, queue: "orders" });
  expect(await heir.heard("waiting")).toMatchObject({ task: taskId, generation: 2 });
  return { database, taskId, zombie, heir, claim };
}

const assertLease = async (
  { database, taskId }: Scene,
  { generation, claimId }: Pick<Message, "generation" | "claimId">,
): Promise<string | undefined> =>
  await database.pool
    .query("SELECT tidemill.assert_lease($1, $2, $3)", [taskId, generation, claimId])
    .then(
      () => "passes",
      (error: Error & { code?: string }) => error.code,
    );

/** With an error when it learnt first that others took it for dead. */
const endedItself = async (one: TaskProcess): Promise<boolean> => (await one.ended) !== null;

describe("a worker that is paused past its lease", () => {
  it("wakes to an aborted signal, and its late completion is refused", async () => {
    const scene = await pauseHolder("wait");
    const { database, taskId, zombie, heir } = scene;
    heir.openGate();
    await eventuallyDone(database, 1);
    const wokenAtMs = performance.now();
    zombie.kill("SIGCONT");
    const aborted = await zombie.heard("aborted");
    expect(aborted).toMatchObject({ generation: 1, name: "LeaseLostError" });
    expect(aborted.atMs - wokenAtMs).toBeLessThan(1_000);
    zombie.openGate();
    await zombie.heard("returned");
    zombie.kill("SIGTERM"); // Which waits until everything it had to say was answered.
    expect(await endedItself(zombie)).toBe(true);
    const [heirId] = heir.ids;
    expect(await readHistory(database.pool, taskId)).toMatchObject([
      { generation: 2, attempt: 2, worker: heirId, result: JSON.stringify({ by: heirId }) },
    ]);
    const runs = await readRuns(database.pool, taskId);
    expect(runs.map((run) => [run.worker, run.generation])).toEqual([
      [zombie.ids[0], 1],
      [heirId, 2],
    ]);
  });

  it("completes nothing even when it answers before it can notice", async () => {
    const database = await testDatabase();
    await createRuns(database);
    await startLeader(database);
    const mill = await database.connect();
    const { id: taskId } = await mill.enqueue(ORDERS, { act: "block" });
    const zombie = await startTaskProcess({ url: database.url, queue: "orders" });
    await zombie.heard("blocked");
    const options = { leaseSeconds: 60 }; // It cannot renew either.
    const heir = await startTaskProcess({ url: database.url, queue: "orders", options });
    expect(await heir.heard("blocked")).toMatchObject({ task: taskId, generation: 2 });
    zombie.unblock();
    zombie.kill("SIGTERM"); // Which waits until everything it had to say was answered.
    expect(await endedItself(zombie)).toBe(true);
    expect(await readHistory(database.pool)).toEqual([]);
    expect(await readLive(database.pool)).toMatchObject([
      { id: taskId, state: "running", generation: 2, worker: heir.ids[0] },
    ]);
    heir.unblock();
    await eventuallyDone(database, 1);
    expect(await readHistory(database.pool, taskId)).toMatchObject([
      { generation: 2, worker: heir.ids[0] },
    ]);
  });

  it("fails assert_lease with TML01 where the live token passes", async () => {
    const scene = await pauseHolder("wait");
    const [task] = await readLive(scene.database.pool);
    const live = { generation: task?.generation ?? 0, claimId: task?.claimId ?? "" };
    expect(await assertLease(scene, scene.claim)).toBe("TML01");
    expect(await assertLease(scene, live)).toBe("passes");
    const oldClaim = { ...live, claimId: scene.claim.claimId ?? "" };
    expect(await assertLease(scene, oldClaim)).toBe("TML01");
    expect(await assertLease(scene, { ...live, generation: 1 })).toBe("TML01");
  });

  it("gets LeaseLostError from complete(tx), and its transaction's effects roll back", async () => {
    const { database, taskId, zombie, heir } = await pauseHolder("complete-in-transaction");
    heir.openGate();
    await heir.heard("committed");
    zombie.kill("SIGCONT");
    zombie.openGate();
    expect(await zombie.heard("refused")).toMatchObject({ name: "LeaseLostError", generation: 1 });
    const { rows } = await database.pool.query<object>(
      "SELECT task_id, generation, worker FROM effects",
    );
    expect(rows).toEqual([{ task_id: taskId, generation: 2, worker: heir.ids[0] }]);
    expect(await readHistory(database.pool, taskId)).toMatchObject([
      { generation: 2, worker: heir.ids[0] },
    ]);
    expect(await readLive(database.pool)).toEqual([]);
  });

  it("cannot take the live lease away with complete(tx) while the other still runs", async () => {
    const { database, taskId, zombie, heir } = await pauseHolder("complete-in-transaction");
    zombie.kill("SIGCONT");
    zombie.openGate();
    expect(await zombie.heard("refused")).toMatchObject({ name: "LeaseLostError" });
    expect(await readLive(database.pool)).toMatchObject([{ id: taskId, generation: 2 }]);
    heir.openGate();
    await heir.heard("committed");
    expect(await readHistory(database.pool, taskId)).toMatchObject([{ generation: 2 }]);
    const { rows } = await database.pool.query<object>("SELECT generation FROM effects");
    expect(rows).toEqual([{ generation: 2 }]);
  });
});

describe("a leader by lease that is paused past its task's lease", () => {
  it("is replaced, and its task runs elsewhere and is completed once", async () => {
    const database = await testDatabase();
    await createRuns(database);
    const mill = await database.connect();
    const { id: taskId } = await mill.enqueue(ORDERS, { act: "wait" });
    const options = { leaderStrategy: "lease" } as const;
    const leader = await startTaskProcess({ url: database.url, queue: "orders", options });
    await leader.heard("waiting");
    // One that does not lead yet may have taken the task: the lead follows.
    const eventuallyLeads = ({ ids }: TaskProcess): Promise<void> =>
      eventually(async () => {
        const { rows } = await database.pool.query("SELECT leader_id FROM tidemill.leader_term");
        expect(rows).toEqual([{ leader_id: ids[0] }]);
      });
    await eventuallyLeads(leader);
    const heir = await startTaskProcess({ url: database.url, queue: "orders", options });
    leader.kill("SIGSTOP");
    expect(await heir.heard("waiting")).toMatchObject({ task: taskId, generation: 2 });
    await eventuallyLeads(heir);
    leader.openGate();
    leader.kill("SIGCONT");
    await leader.heard("returned");
    heir.openGate();
    await eventuallyDone(database, 1);
    expect(await readHistory(database.pool, taskId)).toMatchObject([
      { generation: 2, worker: heir.ids[0] },
    ]);
  });
});

describe("a lone worker that is paused past its lease", () => {
  /** Paused while its handler runs, until the lease has ended, and woken again. */
  const pauseAlone = async (
    tasks: readonly { payload: TaskOrder; partitionKey?: string }[],
  ): Promise<{ database: TestDatabase; ids: string[] }> => {
    const database = await testDatabase();
    await createRuns(database);
    const mill = await database.connect();
    const ids = (await mill.enqueueMany(ORDERS, tasks)).map(({ id }) => id);
    const options = { heartbeatTimeout: 20_000 }; // Its buckets stay its own.
    const lone = await startTaskProcess({ url: database.url, queue: "orders", options });
    await lone.heard("waiting");
    lone.kill("SIGSTOP");
    await eventually(async () => {
      const { rows } = await database.pool.query(
        "SELECT FROM tidemill.tasks WHERE id = $1 AND lease_until <= clock_timestamp()",
        [ids[0]],
      );
      expect(rows).toHaveLength(1);
    });
    lone.kill("SIGCONT");
    await lone.heard("aborted");
    lone.openGate();
    return { database, ids };
  };

  it("runs what it held again", async () => {
    const busy = Array.from({ length: 5 }, () => ({ payload: { act: "work", ms: 20 } }) as const);
    const tasks = [{ payload: { act: "wait" } } as const, ...busy];
    const { database, ids } = await pauseAlone(tasks);
    const mill = await database.connect();
    // Whatever else it completes must not make it forget what it lost.
    const more = await mill.enqueueMany(ORDERS, busy);
    await eventuallyDone(database, ids.length + more.length);
    await expectCompletedOnce(database.pool, [...ids, ...more.map(({ id }) => id)]);
    expect(await readHistory(database.pool, ids[0])).toMatchObject([{ generation: 2 }]);
  });

  it("starts nothing of a key before the task it lost was accepted", async () => {
    const { database, ids } = await pauseAlone(
      [1, 2, 3, 4].map((n) => ({
        payload: { n, act: n === 1 ? "wait" : "work" },
        partitionKey: "order:1",
      })),
    );
    await eventuallyDone(database, 4);
    const ended = (await readHistory(database.pool)).map(({ id }) => id);
    expect(ended).toEqual(ids);
    const runs = await readRuns(database.pool);
    expect(runs.map((run) => run.n)).toEqual([1, 1, 2, 3, 4]);
  });
});

describe("a worker that cannot reach the database", () => {
  it.each(["cut", "freeze"] as const)(
    "tells its handler within a second of the end of its trust (%s)",
    async (how) => {
      const database = await testDatabase();
      await createRuns(database);
      const proxy = await startLossyProxy(database.url);
      const mill = await database.connect();
      await mill.enqueue(ORDERS, { act: "wait" });
      const lone = await startTaskProcess({ url: proxy.url, queue: "orders" });
      await lone.heard("waiting");
      proxy[how]();
      const aborted = await lone.heard("aborted");
      expect(aborted).toMatchObject({ name: "LeaseLostError", generation: 1 });
      const { rows } = await database.pool.query<{ seconds: number }>(
        `SELECT extract(epoch FROM clock_timestamp() - lease_until)::float8 AS seconds
           FROM tidemill.tasks`,
      );
      expect(rows[0]?.seconds).toBeLessThan(1);
    },
  );
});
