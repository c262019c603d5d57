import { describe, expect, it } from "vitest";
import { type TestDatabase, testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import type { TaskOrder } from "../../support/task-process.ts";
import { startTaskProcess } from "../../support/task-processes.ts";
import {
  createRuns,
  eventuallyDone,
  expectCompletedOnce,
  type LiveTask,
  orders,
  readFailures,
  readHistory,
  readLive,
  readRuns,
  startLeader,
} from "../../support/task-runs.ts";

const ORDERS = orders();

async function newDatabase(): Promise<TestDatabase> {
  const database = await testDatabase();
  await createRuns(database);
  await startLeader(database);
  return database;
}

const isGivenBack = (task: LiveTask): boolean => task.state === "pending" && task.attempt === 0;

const statusOf = async ({ pool }: TestDatabase, id: string | undefined): Promise<unknown> =>
  (await pool.query("SELECT status FROM tidemill.worker_info WHERE worker_id = $1", [id])).rows[0];

describe("a worker that is told to stop", () => {
  it("gives back uncounted what outlives the drain, before the rest of its key", async () => {
    const database = await newDatabase();
    const { pool } = database;
    const mill = await database.connect();
    const tasks = [1, 2, 3].map((n) => ({
      payload: { n, act: n === 1 ? "wait" : "work" } as TaskOrder,
      partitionKey: "order:1",
    }));
    const ids = (await mill.enqueueMany(ORDERS, tasks)).map((task) => task.id);
    const options = { drainTimeout: 300 };
    const old = await startTaskProcess({ url: database.url, queue: "orders", options });
    await old.heard("waiting");
    const next = await startTaskProcess({ url: database.url, queue: "orders", isOpen: true });
    old.kill("SIGTERM");
    expect(await old.heard("aborted")).toMatchObject({ name: "WorkerStoppingError" });
    expect(await old.ended).toBe(0);
    await eventuallyDone(database, 3);
    const history = await readHistory(pool);
    expect(history.map((one) => one.id)).toEqual(ids);
    expect(history.map((one) => one.attempt)).toEqual([1, 1, 1]);
    expect(new Set(history.map((one) => one.worker))).toEqual(new Set(next.ids));
    expect((await readRuns(pool)).map((run) => run.n)).toEqual([1, 1, 2, 3]);
    expect(await readFailures(pool)).toEqual([]);
  });

  it("completes what ends within the drain, although its lease ends several times", async () => {
    const database = await newDatabase();
    const { pool } = database;
    const mill = await database.connect();
    const { id } = await mill.enqueue(ORDERS, { act: "wait" });
    const old = await startTaskProcess({
      url: database.url,
      queue: "orders",
      options: { drainTimeout: 20_000, leaseSeconds: 2 },
    });
    await old.heard("waiting");
    const leaseUntil = async (): Promise<Date | undefined> =>
      (await pool.query<{ at: Date }>("SELECT lease_until AS at FROM tidemill.tasks")).rows[0]?.at;
    old.kill("SIGTERM");
    await eventually(async () =>
      expect(await statusOf(database, old.ids[0])).toEqual({ status: "draining" }),
    );
    const before = await leaseUntil();
    await eventually(async () => {
      const passedMs = ((await leaseUntil())?.getTime() ?? 0) - (before?.getTime() ?? 0);
      expect(passedMs).toBeGreaterThan(3_000);
    });
    old.openGate();
    expect(await old.ended).toBe(0);
    expect(old.said.map((one) => one.event)).not.toContain("aborted");
    expect(await readHistory(pool, id)).toMatchObject([
      { state: "completed", attempt: 1, generation: 1, worker: old.ids[0] },
    ]);
    expect(await readFailures(pool)).toEqual([]);
    expect(await statusOf(database, old.ids[0])).toEqual({ status: "stopped" });
  });

  it("gives back at once what it claimed behind the head of a key", async () => {
    const database = await newDatabase();
    const { pool } = database;
    const mill = await database.connect();
    const tasks = [1, 2, 3, 4].map((n) => ({
      payload: { n, act: n === 1 ? "wait" : "work" } as TaskOrder,
      partitionKey: "order:1",
    }));
    const ids = (await mill.enqueueMany(ORDERS, tasks)).map((task) => task.id);
    const options = { drainTimeout: 20_000 };
    const old = await startTaskProcess({ url: database.url, queue: "orders", options });
    await old.heard("waiting");
    const states = async (): Promise<string[]> =>
      (await readLive(pool)).map((task) => `${task.state} ${task.attempt}`);
    await eventually(async () => expect(await states()).toEqual(Array(4).fill("running 1")));
    await startTaskProcess({ url: database.url, queue: "orders", isOpen: true });
    old.kill("SIGTERM");
    const rest = ["pending 0", "pending 0", "pending 0"];
    await eventually(async () => expect(await states()).toEqual(["running 1", ...rest]));
    // The next owner has the bucket and may not start any of them yet.
    await eventually(async () => {
      const { rows } = await pool.query<{ worker_id: string }>(
        "SELECT worker_id FROM tidemill.bucket_owners WHERE worker_id = $1",
        [old.ids[0]],
      );
      expect(rows).toEqual([]);
    });
    expect((await readRuns(pool)).map((run) => run.n)).toEqual([1]);
    old.openGate();
    expect(await old.ended).toBe(0);
    await eventuallyDone(database, 4);
    const history = await readHistory(pool);
    expect(history.map((one) => [one.id, one.attempt])).toEqual(ids.map((id) => [id, 1]));
    expect((await readRuns(pool)).map((run) => run.n)).toEqual([1, 2, 3, 4]);
    expect(await readFailures(pool)).toEqual([]);
  });

  it("gives back what it claimed ahead and had no slot for", async () => {
    const database = await newDatabase();
    const { pool } = database;
    const mill = await database.connect();
    const work = (count: number): { payload: TaskOrder }[] =>
      Array.from({ length: count }, () => ({ payload: { act: "work" } }));
    const waits = [{ payload: { act: "wait" } as const }, { payload: { act: "wait" } as const }];
    // Enough quick ones that it claims ahead when it comes to those that wait.
    const handles = await mill.enqueueMany(ORDERS, [...work(600), ...waits, ...work(200)]);
    const old = await startTaskProcess({
      url: database.url,
      queue: "orders",
      options: { concurrency: 2, drainTimeout: 200 },
    });
    await eventually(async () => {
      expect(old.said.filter((one) => one.event === "waiting")).toHaveLength(2);
      const running = (await readLive(pool)).filter((task) => task.state === "running");
      expect(running.length).toBeGreaterThan(2);
    });
    old.kill("SIGTERM");
    expect(await old.ended).toBe(0);
    const live = await readLive(pool);
    expect(live.length).toBeGreaterThan(2);
    expect(live.filter((task) => !isGivenBack(task))).toEqual([]);
    expect(live.filter((task) => task.generation > 0).length).toBeGreaterThan(2);
    await startTaskProcess({ url: database.url, queue: "orders", isOpen: true });
    await eventuallyDone(database, handles.length);
    await expectCompletedOnce(
      pool,
      handles.map((one) => one.id),
    );
    expect(await readFailures(pool)).toEqual([]);
    const attempts = new Set((await readHistory(pool)).map((one) => one.attempt));
    expect(attempts).toEqual(new Set([1]));
  });
});
