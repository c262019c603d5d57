import { expect, it } from "vitest";
import { type Priority, queue } from "../../../src/index.ts";
import { testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { BRISK, range } from "./scene.ts";

/** Priorities below the usual one. */
const ROUNDS = 4;

it("starts what came to a new lane in one breath with what came to a known one", async () => {
  const orders = queue<string>("orders");
  const database = await testDatabase();
  const mill = await database.connect();
  const producer = await database.connect(); // As another process: the worker is told once.
  const ran: string[] = [];
  await mill.startWorker({
    ...BRISK,
    taskPollInterval: 60_000, // Nobody else tells of it.
    handlers: [orders.handle(({ payload }) => void ran.push(payload))],
  });
  for (const round of range(ROUNDS)) {
    // The second comes while it is known where the first lane begins: nobody looks at all of them.
    await producer.enqueue(orders, `first ${round}`);
    await producer.enqueueMany(orders, [
      { payload: `known ${round}` },
      { payload: `new ${round}`, priority: round as Priority },
    ]);
    // A worker that nobody tells anything looks after five seconds.
    await eventually(() => expect(ran).toContain(`new ${round}`), { timeoutMs: 4_000 });
  }
  await eventually(() => expect(ran).toHaveLength(3 * ROUNDS));
});
