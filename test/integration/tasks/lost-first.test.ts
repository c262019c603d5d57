import { expect, it } from "vitest";
import { testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import type { TaskOrder } from "../../support/task-process.ts";
import { startTaskProcess } from "../../support/task-processes.ts";
import { createRuns, orders, readRuns, startLeader } from "../../support/task-runs.ts";

const ORDERS = orders();
const LOST = 5;
/** Half a minute for two slots. */
const BACKLOG = 1_200;

it("runs what a dead worker held before a backlog of higher priority", async () => {
  const database = await testDatabase();
  await createRuns(database);
  await startLeader(database);
  const { pool, url } = database;
  const mill = await database.connect();
  const hold = { payload: { act: "wait" } as TaskOrder, priority: "low" as const };
  const held = await mill.enqueueMany(
    ORDERS,
    Array.from({ length: LOST }, () => hold),
  );
  const first = await startTaskProcess({ url, queue: "orders", options: { concurrency: LOST } });
  await eventually(async () => expect(await readRuns(pool)).toHaveLength(LOST));
  first.kill("SIGKILL");
  const work = { payload: { act: "work", ms: 50 } as TaskOrder, priority: "high" as const };
  await mill.enqueueMany(
    ORDERS,
    Array.from({ length: BACKLOG }, () => work),
  );
  const options = { concurrency: 2 };
  await startTaskProcess({ url, queue: "orders", options, isOpen: true });
  const ids = held.map(({ id }) => id);
  const ended = "SELECT FROM tidemill.task_history WHERE id = ANY ($1)";
  await eventually(async () => expect((await pool.query(ended, [ids])).rowCount).toBe(LOST), {
    timeoutMs: 50_000,
  });
  const { rowCount } = await pool.query("SELECT FROM tidemill.live_tasks");
  expect(rowCount).toBeGreaterThan(BACKLOG / 2);
});
