import { describe, expect, it } from "vitest";
import { type TestDatabase, testDatabase } from "../../support/database.ts";
import { startTaskProcess, type TaskProcess } from "../../support/task-processes.ts";
import { createRuns, eventuallyDone, orders } from "../../support/task-runs.ts";

const ORDERS = orders();

async function newDatabase(): Promise<TestDatabase> {
  const database = await testDatabase();
  await createRuns(database);
  return database;
}

/** Nothing but a timer of the worker could keep it: the program itself has closed all it has. */
async function expectToEnd(worker: TaskProcess): Promise<void> {
  worker.kill("SIGTERM");
  expect(await worker.heard("left")).toMatchObject({ timers: 0 });
  expect(await worker.ended).toBe(0);
}

describe("a process whose worker has stopped ends by itself", () => {
  it("after a lease was lost", async () => {
    const database = await newDatabase();
    const mill = await database.connect();
    await mill.enqueue(ORDERS, { act: "wait" });
    const worker = await startTaskProcess({ url: database.url, queue: "orders" });
    await worker.heard("waiting");
    await database.pool.query("UPDATE tidemill.tasks SET lease_generation = lease_generation + 1");
    expect(await worker.heard("aborted")).toMatchObject({ name: "LeaseLostError" });
    worker.openGate();
    await worker.heard("returned");
    await expectToEnd(worker);
  });

  it("after a task on probation", async () => {
    const database = await newDatabase();
    const mill = await database.connect();
    await mill.enqueue(ORDERS, { act: "work" });
    await database.pool.query(
      `UPDATE tidemill.tasks
          SET on_probation = TRUE, claim_order = nextval('tidemill.task_numbers'),
              lane = (SELECT lane FROM tidemill.task_lanes WHERE priority = -1)`,
    );
    const worker = await startTaskProcess({ url: database.url, queue: "orders" });
    await eventuallyDone(database, 1);
    await expectToEnd(worker);
  });

  it("when a handler never returns that has a time limit", async () => {
    const database = await newDatabase();
    const mill = await database.connect();
    await mill.enqueue(ORDERS, { act: "wait" });
    const worker = await startTaskProcess({
      url: database.url,
      queue: "orders",
      queueOptions: { timeoutSeconds: 600 },
      options: { drainTimeout: 100 },
    });
    await worker.heard("waiting");
    await expectToEnd(worker);
    expect(worker.said.map((one) => one.event)).not.toContain("returned");
  });
});
