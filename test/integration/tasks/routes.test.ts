import { describe, expect, it } from "vitest";
import { InvalidInputError, queue, route } from "../../../src/index.ts";
import { testDatabase } from "../../support/database.ts";

const receipts = queue<{ order: string; total: number }>("receipts");
const paid = route("receipt of a paid order", {
  eventTypes: ["OrderPaid"],
  queue: receipts,
  task: (event: { stream: { id: string }; data: unknown }) => ({
    payload: { order: event.stream.id, total: (event.data as { total: number }).total },
    partitionKey: `order:${event.stream.id}`,
  }),
});

describe("a route", () => {
  it("enqueues exactly one task per event, in the transaction of the append", async () => {
    const db = await testDatabase();
    const mill = await db.connect({ routes: [paid] });
    const order = { type: "Order", id: "1" };
    await mill.append(order, [
      { type: "OrderPlaced", data: {} },
      { type: "OrderPaid", data: { total: 3 } },
      { type: "OrderPaid", data: { total: 4 } },
    ]);
    const stored = await mill.tasks.list({ queue: "receipts" });
    expect(stored.map((task) => [task.payload, task.partitionKey, task.causedBy])).toEqual([
      [{ order: "1", total: 4 }, "order:1", "3"],
      [{ order: "1", total: 3 }, "order:1", "2"],
    ]);
  });

  it("enqueues nothing when the append is refused or rolled back", async () => {
    const db = await testDatabase();
    const mill = await db.connect({ routes: [paid] });
    const order = { type: "Order", id: "1" };
    const events = [{ type: "OrderPaid", data: { total: 3 } }];
    await expect(mill.append(order, events, { expectedVersion: 7n })).rejects.toThrow();
    const rolledBack = mill.transaction(async (tx) => {
      await mill.append(order, events, { tx });
      throw new Error("changed my mind");
    });
    await expect(rolledBack).rejects.toThrow("changed my mind");
    expect(await mill.tasks.list()).toEqual([]);
    expect(await mill.latestPosition()).toBe(0n);
  });

  it("appends nothing when its task is refused", async () => {
    const db = await testDatabase();
    const broken = route("too long a key", {
      eventTypes: ["OrderPaid"],
      queue: receipts,
      task: () => ({ payload: { order: "1", total: 1 }, partitionKey: "x".repeat(2_000) }),
    });
    const mill = await db.connect({ routes: [broken] });
    const appending = mill.append({ type: "Order", id: "1" }, [{ type: "OrderPaid", data: {} }]);
    await expect(appending).rejects.toBeInstanceOf(InvalidInputError);
    expect(await mill.latestPosition()).toBe(0n);
  });

  it("leads on: a task appends events in the transaction that completes it", async () => {
    const db = await testDatabase();
    const mill = await db.connect({ routes: [paid] });
    const handler = receipts.handle(async (task, context) => {
      await mill.transaction(async (tx) => {
        const sent = { type: "ReceiptSent", data: { order: task.payload.order } };
        await mill.append({ type: "Receipt", id: task.payload.order }, [sent], { tx });
        await context.complete(tx);
      });
    });
    await mill.startWorker({ handlers: [handler] });
    await mill.append({ type: "Order", id: "9" }, [{ type: "OrderPaid", data: { total: 1 } }]);
    const [task] = await mill.tasks.list({ queue: "receipts" });
    await mill.result(task?.id ?? "");
    const events = await mill.readStream({ type: "Receipt", id: "9" });
    expect(events.map((event) => event.type)).toEqual(["ReceiptSent"]);
  });
});
