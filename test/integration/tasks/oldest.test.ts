import { expect, it } from "vitest";
import type { Tidemill } from "../../../src/index.ts";
import { queue } from "../../../src/index.ts";
import { type TestDatabase, testDatabase } from "../../support/database.ts";
import { range } from "./scene.ts";

const STEPS = queue<number>("steps");

/** Everything that waits now has waited for so long. */
async function wait({ pool }: TestDatabase, seconds: number): Promise<void> {
  for (const [table, column] of [
    ["tasks", "run_at"],
    ["task_packs", "created_at"],
  ]) {
    await pool.query(
      `UPDATE tidemill.${table} SET ${column} = ${column} - make_interval(secs => $1)`,
      [seconds],
    );
  }
}

const oldest = async (mill: Tidemill, name = "steps"): Promise<number | undefined> => {
  const found = (await mill.queues.list()).find((one) => one.name === name);
  return found?.oldestPendingSeconds;
};

it("the oldest keyed task is found, whichever bucket and tenant it is of", async () => {
  const database = await testDatabase();
  const mill = await database.connect();
  await mill.enqueue(STEPS, 0, { partitionKey: "first", tenant: "acme" });
  await wait(database, 100);
  for (const n of range(20)) await mill.enqueue(STEPS, n, { partitionKey: `key ${n}` });
  await mill.enqueue(queue("others"), 0, { partitionKey: "first" });
  await wait(database, 10);
  expect(await oldest(mill)).toBeGreaterThanOrEqual(110);
  expect(await oldest(mill, "others")).toBeLessThan(100);
});

it("it is found in a pack, too", async () => {
  const database = await testDatabase();
  const mill = await database.connect();
  const bulk = range(100).map((payload) => ({ payload, partitionKey: `key ${payload}` }));
  await mill.enqueueMany(STEPS, bulk);
  const { rows } = await database.pool.query("SELECT FROM tidemill.tasks");
  expect(rows).toEqual([]);
  await wait(database, 100);
  expect(await oldest(mill)).toBeGreaterThanOrEqual(100);
});

it("one that waits for its time, or whose key is paused, could not run", async () => {
  const database = await testDatabase();
  const mill = await database.connect();
  await mill.enqueue(STEPS, 0, { partitionKey: "held" });
  await wait(database, 100);
  await mill.enqueue(STEPS, 1, { partitionKey: "late", delaySeconds: 600 });
  await mill.queues.pauseKey("steps", "held");
  expect(await oldest(mill)).toBeUndefined();
  await mill.queues.resumeKey("steps", "held");
  expect(await oldest(mill)).toBeGreaterThanOrEqual(100);
});
