import pg from "pg";
import { expect, it, vi } from "vitest";
import { queue } from "../../../src/index.ts";
import { testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { BRISK, range } from "./scene.ts";

const TASKS = 20;

it("asks for a lone task once, and not again when it has ended", async () => {
  const orders = queue<number>("orders");
  const database = await testDatabase();
  const mill = await database.connect();
  const producer = await database.connect();
  let ran = 0;
  await mill.startWorker({
    ...BRISK,
    taskPollInterval: 60_000,
    handlers: [orders.handle(() => void (ran += 1))],
  });
  await producer.enqueue(orders, 0); // From here on the lanes are known.
  await eventually(() => expect(ran).toBe(1));
  const sent = vi.spyOn(pg.Client.prototype, "query");
  try {
    for (const n of range(TASKS)) {
      await producer.enqueue(orders, n);
      await eventually(() => expect(ran).toBe(2 + n));
    }
    const names = sent.mock.calls.map(([query]) => (query as { name?: string }).name ?? "");
    const claims = names.filter((name) => name.startsWith("tasks_claim"));
    expect(claims.length).toBeGreaterThanOrEqual(TASKS);
    // Some of them were told of twice.
    expect(claims.length).toBeLessThan(1.5 * TASKS);
  } finally {
    sent.mockRestore();
  }
});
