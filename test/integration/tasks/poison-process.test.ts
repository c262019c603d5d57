import { expect, it } from "vitest";
import { onCleanup, type TestDatabase, testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import type { TaskOrder } from "../../support/task-process.ts";
import { startTaskProcess, type TaskProcess } from "../../support/task-processes.ts";
import {
  createRuns,
  expectCompletedOnce,
  orders,
  readFailures,
  readRuns,
  startLeader,
} from "../../support/task-runs.ts";

const ORDERS = orders();
const INNOCENT = 500;

/** Starts the process again whenever it ends, as an init system does. */
async function supervise(start: () => Promise<TaskProcess>): Promise<{ starts(): number }> {
  let starts = 0;
  let isOver = false;
  const run = async (current: TaskProcess): Promise<void> => {
    await current.ended;
    if (isOver) return;
    starts += 1;
    await run(await start());
  };
  starts += 1;
  const running = run(await start());
  running.catch(() => {}); // A start that fails shows as work that is not done.
  onCleanup(async () => {
    isOver = true;
  });
  return { starts: () => starts };
}

async function deadLetters({ pool }: TestDatabase): Promise<object[]> {
  const { rows } = await pool.query<object>(
    "SELECT id, cause, losses, attempt FROM tidemill.dead_letters",
  );
  return rows;
}

it.each(["exit", "kill"] as const)(
  "buries a task that takes its process along (%s), and no task that was claimed with it",
  async (act) => {
    const database = await testDatabase();
    await createRuns(database);
    await startLeader(database);
    const { pool } = database;
    const mill = await database.connect();
    const innocent = { payload: { act: "work" } as TaskOrder };
    const half = Array.from({ length: INNOCENT / 2 }, () => innocent);
    const handles = await mill.enqueueMany(ORDERS, [...half, { payload: { act } }, ...half]);
    const killer = handles[half.length]?.id ?? "";
    const supervisor = await supervise(() =>
      startTaskProcess({
        url: database.url,
        queue: "orders",
        options: { concurrency: 1_000 },
      }),
    );
    await eventually(async () => expect(await deadLetters(database)).toHaveLength(1), {
      timeoutMs: 45_000,
      everyMs: 50,
    });
    const dead = { id: killer, cause: "worker_lost", losses: 2, attempt: 4 };
    expect(await deadLetters(database)).toEqual([dead]);
    // One loss in company, and three alone.
    expect((await readFailures(pool, killer)).map((one) => one.outcome)).toEqual(
      Array(4).fill("lost"),
    );
    const runs = await readRuns(pool, killer);
    expect(new Set(runs.map((run) => run.worker)).size).toBe(4);
    const [first] = runs;
    const { rows } = await pool.query<{ companions: number }>(
      "SELECT count(*)::int AS companions FROM runs WHERE claim_id = $1 AND task_id <> $2",
      [first?.claimId, killer],
    );
    expect(rows[0]?.companions).toBeGreaterThan(10);
    await eventually(async () => {
      const live = await pool.query("SELECT FROM tidemill.live_tasks");
      expect(live.rowCount).toBe(0);
    });
    const others = handles.map((one) => one.id).filter((id) => id !== killer);
    await expectCompletedOnce(pool, others);
    expect(supervisor.starts()).toBeGreaterThanOrEqual(4);
  },
);

it("buries a keyed task that takes its process along, and goes on with its key", async () => {
  const database = await testDatabase();
  await createRuns(database);
  await startLeader(database);
  const { pool } = database;
  const mill = await database.connect();
  const tasks = Array.from({ length: 100 }, (_, key) => ({
    payload: { act: key === 50 ? "kill" : "work" } as TaskOrder,
    partitionKey: `order:${key}`,
  }));
  const behind = { payload: { act: "work" } as TaskOrder, partitionKey: "order:50" };
  const handles = await mill.enqueueMany(ORDERS, [...tasks, behind]);
  const killer = handles[50]?.id ?? "";
  const follower = handles.at(-1)?.id ?? "";
  await supervise(() =>
    startTaskProcess({
      url: database.url,
      queue: "orders",
      options: { concurrency: 1_000 },
    }),
  );
  await eventually(
    async () => {
      expect((await pool.query("SELECT FROM tidemill.live_tasks")).rowCount).toBe(0);
    },
    { timeoutMs: 50_000, everyMs: 50 },
  );
  const dead = { id: killer, cause: "worker_lost", losses: 2, attempt: 4 };
  expect(await deadLetters(database)).toEqual([dead]);
  const others = handles.map((one) => one.id).filter((id) => id !== killer);
  await expectCompletedOnce(pool, others);
  const { rows } = await pool.query<{ dead_at: Date }>("SELECT dead_at FROM tidemill.dead_letters");
  const [run] = await readRuns(pool, follower);
  expect(run?.started.getTime()).toBeGreaterThan(rows[0]?.dead_at.getTime() ?? Infinity);
});
