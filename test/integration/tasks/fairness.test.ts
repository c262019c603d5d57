import { describe, expect, it } from "vitest";
import { queue } from "../../../src/index.ts";
import { testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { BRISK, labour, range, readColumn } from "./scene.ts";

describe("priority", () => {
  it("is the order of what waits when a worker comes", async () => {
    const database = await testDatabase();
    const mill = await database.connect();
    const orders = queue<number>("orders");
    const priorities = [5, 0, 9, 3, 8, 1, 7, 2, 6, 4];
    await mill.enqueueMany(
      orders,
      priorities.map((priority) => ({ payload: priority, priority })),
    );
    const seen: number[] = [];
    const handler = orders.handle((task) => void seen.push(task.payload));
    await mill.startWorker({ ...BRISK, handlers: [handler], concurrency: 1 });
    await eventually(() => expect(seen).toHaveLength(10));
    expect(seen).toEqual([9, 8, 7, 6, 5, 4, 3, 2, 1, 0]);
  });

  it("does not starve what is low while high work never ends", async () => {
    const database = await testDatabase();
    const mill = await database.connect();
    const orders = queue<string>("orders");
    let isFlooding = true;
    let high = 0;
    const handler = orders.handle(async ({ payload }) => {
      if (payload === "low") return;
      await labour(2);
      high += 1;
      if (isFlooding) await mill.enqueue(orders, "high", { priority: 9 });
    });
    const flood = range(200).map(() => ({ payload: "high", priority: 9 }));
    await mill.enqueueMany(orders, flood);
    await mill.startWorker({ ...BRISK, handlers: [handler], concurrency: 4, agingSeconds: 0.1 });
    await eventually(() => expect(high).toBeGreaterThan(50));
    const low = await mill.enqueue(orders, "low", { priority: 0 });
    await low.result({ timeoutMs: 8_000 });
    const waiting = "SELECT count(*)::int FROM tidemill.tasks WHERE priority = 9";
    expect((await readColumn<number>(database, waiting))[0]).toBeGreaterThan(50);
    isFlooding = false;
  });
});

describe("tenants of one queue", () => {
  it("wait for one turn of a tenant with 20,000 tasks, not for all of them", async () => {
    const database = await testDatabase();
    const mill = await database.connect();
    const orders = queue<string>("orders");
    const big = range(20_000).map(() => ({ payload: "big", tenant: "big" }));
    await mill.enqueueMany(orders, big);
    const turn = 20;
    const started: string[] = [];
    const handler = orders.handle(async ({ payload }) => {
      started.push(payload);
      await labour(5);
    });
    const options = { handlers: [handler], concurrency: 10, fairnessTurn: turn };
    await mill.startWorker({ ...BRISK, ...options });
    await eventually(() => expect(started.length).toBeGreaterThan(300));
    const small = range(10).map(() => ({ payload: "small", tenant: "small" }));
    const before = started.length;
    const handles = await mill.enqueueMany(orders, small);
    await Promise.all(handles.map((handle) => handle.result()));
    const [between] = await readColumn<number>(
      database,
      `WITH small AS (SELECT min(created_at) AS since, max(claimed_at) AS until
                        FROM tidemill.task_history WHERE tenant = 'small')
       SELECT count(*)::int
         FROM (SELECT claimed_at FROM tidemill.task_history WHERE tenant = 'big'
                UNION ALL
               SELECT claimed_at FROM tidemill.tasks WHERE claimed_at IS NOT NULL) AS big, small
        WHERE big.claimed_at >= small.since AND big.claimed_at < small.until`,
    );
    // One claim that did not know of the small tenant yet, and one turn.
    expect(between).toBeLessThanOrEqual(230 + turn);
    // What was claimed before waits in the worker's memory: no more than a tenth of a second of it.
    const last = started.lastIndexOf("small");
    const ahead = started.slice(before, last).filter((payload) => payload === "big").length;
    expect(ahead).toBeLessThan(500);
  });

  it.each([1, 2])("share by their weights, over %i workers", async (workers) => {
    const database = await testDatabase();
    const mill = await database.connect();
    const tenantWeights = { heavy: 3 };
    const orders = queue<number>("orders", { tenantWeights });
    const tasks = (tenant: string) => range(1_500).map((payload) => ({ payload, tenant }));
    await mill.enqueueMany(orders, [...tasks("heavy"), ...tasks("light")]);
    const order: string[] = [];
    const handler = orders.handle(async ({ tenant }) => {
      order.push(tenant);
      await labour(1);
    });
    const options = { handlers: [handler], concurrency: 8, fairnessTurn: 4 };
    for (let left = workers; left > 0; left -= 1) {
      await (await database.connect()).startWorker({ ...BRISK, ...options });
    }
    await eventually(() => expect(order.length).toBeGreaterThan(1_200));
    const heavy = order.slice(0, 1_200).filter((tenant) => tenant === "heavy").length;
    expect(heavy / 1_200).toBeGreaterThan(0.7);
    expect(heavy / 1_200).toBeLessThan(0.8);
  });

  it("may have names that every object knows", async () => {
    const database = await testDatabase();
    const mill = await database.connect();
    const orders = queue<number>("orders", { tenantWeights: { heavy: 3 } });
    const tenants = ["constructor", "__proto__", "heavy"];
    const handles = await mill.enqueueMany(
      orders,
      range(300).map((n) => ({ payload: n, tenant: tenants[n % 3] ?? "" })),
    );
    await mill.startWorker({ ...BRISK, handlers: [orders.handle(() => {})], fairnessTurn: 5 });
    await Promise.all(handles.map((handle) => handle.result()));
  });
});
