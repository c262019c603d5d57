import { expect, it } from "vitest";
import { queue } from "../../../src/index.ts";
import { testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { BRISK, range } from "./scene.ts";

const ROUNDS = 5;

it("starts a keyed task that came in one breath with others", async () => {
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
  const key = "order 1";
  await producer.enqueue(orders, "warm", { partitionKey: key });
  await eventually(() => expect(ran).toContain("warm"));
  for (const round of range(ROUNDS)) {
    // The worker has just seen that no keys wait, and finds what it is told of.
    await producer.enqueue(orders, `first ${round}`);
    await producer.transaction(async (tx) => {
      await producer.enqueue(orders, `other ${round}`, { tx });
      await producer.enqueue(orders, `keyed ${round}`, { tx, partitionKey: key });
    });
    // A worker that nobody tells anything looks after five seconds.
    await eventually(() => expect(ran).toContain(`keyed ${round}`), { timeoutMs: 4_000 });
  }
  await eventually(() => expect(ran).toHaveLength(1 + 3 * ROUNDS));
});
