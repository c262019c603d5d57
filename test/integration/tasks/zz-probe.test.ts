import { it } from "vitest";
import { setTimeout as delay } from "node:timers/promises";
import { testDatabase } from "../../support/database.ts";
import { startTaskProcess } from "../../support/task-processes.ts";
import { createRuns, orders, startLeader } from "../../support/task-runs.ts";
it("probe", async () => {
  const database = await testDatabase();
  await createRuns(database);
  await startLeader(database);
  const mill = await database.connect();
  const options = { concurrency: 100, leaseSeconds: 1 };
  await mill.enqueueMany(orders(), Array.from({ length: 20 }, () => ({ payload: { act: "wait" } as const })));
  const a = await startTaskProcess({ url: database.url, queue: "orders", options });
  await a.heard("waiting");
  await startTaskProcess({ url: database.url, queue: "orders", options, isOpen: true });
  a.kill("SIGKILL");
  for (let i = 0; i < 24; i++) {
    await delay(1000);
    const r = await database.pool.query("select (select count(*) from tidemill.task_history) done, (select count(*) from tidemill.tasks where on_probation) prob, (select count(*) from tidemill.tasks where state='running') running");
    console.log(i, JSON.stringify(r.rows[0]));
  }
}, 60000);
