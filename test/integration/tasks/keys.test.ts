import { describe, expect, it } from "vitest";
import { failed, queue } from "../../../src/index.ts";
import { testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { gate } from "./scene.ts";

const FAST = {
  heartbeatInterval: 200,
  heartbeatTimeout: 5_000,
  rebalanceInterval: 200,
  dispatcherStrategy: "notify" as const,
};

const HOLDS = "SELECT why, task_id FROM tidemill.key_holds";

describe("tasks of one key", () => {
  it("run before what was enqueued after their commit, however late that was", async () => {
    const db = await testDatabase();
    const mill = await db.connect();
    const orders = queue<{ n: number }>("orders");
    const ran: number[] = [];
    let others = 0;
    const handler = orders.handle((task) => {
      if (task.partitionKey === "order:0") ran.push(task.payload.n);
      else others += 1;
    });
    // Few at a time: each claim takes all that it asked of a bucket, and goes on behind it.
    await mill.startWorker({ ...FAST, handlers: [handler], concurrency: 1 });
    const session = await db.session();
    await session.query("BEGIN");
    await mill.enqueue(orders, { n: 1 }, { partitionKey: "order:0", tx: session });
    for (let round = 2; round < 32; round += 1) {
      const tasks = Array.from({ length: 100 }, (_, key) => ({
        payload: { n: round },
        partitionKey: `order:${key}`,
      }));
      await mill.enqueueMany(orders, tasks);
      const all = 99 * (round - 1);
      await eventually(() => expect([ran.length, others]).toEqual([round - 1, all]));
    }
    await session.query("COMMIT");
    await mill.enqueue(orders, { n: 32 }, { partitionKey: "order:0" });
    await eventually(() => expect(ran.slice(30)).toEqual([1, 32]));
  });

  it("that wait in a worker and lose their lease run before those behind them", async () => {
    const db = await testDatabase();
    const mill = await db.connect();
    const orders = queue<{ n: number }>("orders");
    const head = gate();
    const ran: number[] = [];
    const handler = orders.handle(async (task) => {
      if (task.payload.n === 1) await head.opened;
      ran.push(task.payload.n);
    });
    await mill.startWorker({ ...FAST, handlers: [handler], leaseSeconds: 5 });
    const ids: string[] = [];
    for (const n of [1, 2, 3]) {
      const { id } = await mill.enqueue(orders, { n }, { partitionKey: "order:1" });
      ids.push(id);
      await eventually(async () => expect((await mill.tasks.get(id)).state).toBe("running"));
    }
    // As if the lease of the second had ended before that of the third, and it was reaped.
    await db.pool.query(
      `UPDATE tidemill.tasks
          SET state = 'pending', claim_id = NULL, leased_by = NULL, claimed_at = NULL,
              lease_until = NULL
        WHERE id = $1`,
      [ids[1]],
    );
    await eventually(() => expect(mill.taskMetrics.leaseLosses.value({ queue: "orders" })).toBe(1));
    head.open();
    await eventually(() => expect(ran).toEqual([1, 2, 3]));
  });

  it("leave the other slots to other keys, however many of them wait", async () => {
    const db = await testDatabase();
    const mill = await db.connect();
    const orders = queue<{ n: number }>("orders");
    const end = gate();
    const started: string[] = [];
    const handler = orders.handle(async (task) => {
      started.push(task.partitionKey ?? "");
      await end.opened;
    });
    await mill.startWorker({ ...FAST, handlers: [handler], concurrency: 4 });
    for (let n = 0; n < 60; n += 1) await mill.enqueue(orders, { n }, { partitionKey: "hot" });
    const held = "SELECT count(*)::int FROM tidemill.tasks WHERE state = 'running'";
    await eventually(async () => {
      const { rows } = await db.pool.query<{ count: number }>(held);
      expect(rows[0]?.count).toBeGreaterThan(1);
    });
    for (const key of ["a", "b", "c"]) await mill.enqueue(orders, { n: 0 }, { partitionKey: key });
    await eventually(() => expect(new Set(started)).toEqual(new Set(["hot", "a", "b", "c"])));
    end.open();
  });

  it("of another tenant do not wait for those of an equal key", async () => {
    const db = await testDatabase();
    const mill = await db.connect();
    const orders = queue<{ n: number }>("orders");
    const end = gate();
    const started = new Set<string>();
    const handler = orders.handle(async (task) => {
      started.add(task.tenant);
      await end.opened;
    });
    await mill.startWorker({ ...FAST, handlers: [handler], concurrency: 4 });
    for (let n = 0; n < 20; n += 1) {
      await mill.enqueue(orders, { n }, { partitionKey: "same", tenant: "acme" });
    }
    await eventually(() => expect(started).toEqual(new Set(["acme"])));
    await mill.enqueue(orders, { n: 0 }, { partitionKey: "same", tenant: "beta" });
    await eventually(() => expect(started).toEqual(new Set(["acme", "beta"])));
    end.open();
  });

  it("of another queue do not wait for those of an equal key", async () => {
    const db = await testDatabase();
    const mill = await db.connect();
    const [invoices, emails] = [queue("invoices"), queue("emails")];
    const head = gate();
    const ran: string[] = [];
    const handlers = [
      invoices.handle(async () => await head.opened),
      emails.handle((task) => void ran.push(task.id)),
    ];
    await mill.startWorker({ ...FAST, handlers });
    const key = { partitionKey: "customer:1" };
    const held = await mill.enqueue(invoices, null, key);
    await eventually(async () => expect((await mill.tasks.get(held.id)).state).toBe("running"));
    const { id } = await mill.enqueue(emails, null, key);
    await eventually(() => expect(ran).toEqual([id]));
    head.open();
  });

  it("wait for a head that fails, and follow it once it succeeds", async () => {
    const db = await testDatabase();
    const mill = await db.connect();
    const orders = queue<{ n: number }>("orders", {
      backoff: { kind: "fixed", baseSeconds: 0.2 },
    });
    const ran: string[] = [];
    const handler = orders.handle((task) => {
      ran.push(`${task.payload.n}#${task.attempt}`);
      if (task.payload.n === 1 && task.attempt < 3) return failed("not yet");
      return undefined;
    });
    await mill.startWorker({ ...FAST, handlers: [handler] });
    await mill.enqueueMany(
      orders,
      [1, 2, 3].map((n) => ({ payload: { n }, partitionKey: "order:1" })),
    );
    await eventually(() => expect(ran).toEqual(["1#1", "1#2", "1#3", "2#1", "3#1"]), {
      timeoutMs: 10_000,
    });
    const { rows } = await db.pool.query(
      "SELECT attempt, outcome, reason FROM tidemill.task_failures ORDER BY attempt",
    );
    expect(rows).toEqual([
      { attempt: 1, outcome: "failed", reason: "not yet" },
      { attempt: 2, outcome: "failed", reason: "not yet" },
    ]);
  });

  it.for([
    ["are tried again", { backoff: { kind: "fixed", baseSeconds: 0.1 } }, "retry", 0],
    ["park their key", { maxAttempts: 1, onFailure: "park" }, "parked", 2],
  ] as const)("that fail in one moment %s", async ([, options, why, dead]) => {
    const db = await testDatabase();
    const mill = await db.connect();
    const orders = queue<{ n: number }>("orders", { ...options, keyConcurrency: 2 });
    const both = gate();
    const ran: string[] = [];
    const holds: unknown[] = [];
    const handler = orders.handle(async (task) => {
      ran.push(`${task.payload.n}#${task.attempt}`);
      if (task.attempt > 1) {
        holds.push(...(await db.pool.query(HOLDS)).rows);
        return undefined;
      }
      if (ran.length === 2) both.open();
      await both.opened;
      return failed("both");
    });
    const [first] = await mill.enqueueMany(
      orders,
      [1, 2].map((n) => ({ payload: { n }, partitionKey: "order:1" })),
    );
    await mill.startWorker({ ...FAST, handlers: [handler] });
    const counts = `SELECT (SELECT count(*)::int FROM tidemill.task_history
                             WHERE state = 'completed') AS done,
                           (SELECT count(*)::int FROM tidemill.dead_letters) AS dead`;
    await eventually(
      async () => expect((await db.pool.query(counts)).rows).toEqual([{ done: 2 - dead, dead }]),
      { timeoutMs: 10_000 },
    );
    if (dead > 0) holds.push(...(await db.pool.query(HOLDS)).rows);
    // It names the first of the two.
    expect(holds[0]).toEqual({ why, task_id: first?.id });
    expect(ran.slice(2)).toEqual(dead > 0 ? [] : ["1#2", "2#2"]);
  });
});
