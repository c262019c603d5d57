import { describe, expect, it } from "vitest";
import { queue, type TaskHandler, type TaskOptions, type Tidemill } from "../../../src/index.ts";
import { testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { BRISK, gate, labour, range, readColumn } from "./scene.ts";

const TURN = 20;
const CONCURRENCY = 10;
/** Of the tenant with the most. A million take some seconds more, a busy machine much longer. */
const BACKLOG = Number(process.env["TIDEMILL_TEST_BACKLOG"] ?? 20_000);

interface SwampOptions {
  readonly others?: readonly TaskHandler[];
  /** How many there are of the many. */
  readonly backlog?: number;
}

/**
 * Workers that have claimed far more of many tasks than they have slots, and all of whose slots are
 * taken by them: whatever comes now comes to a full house.
 */
async function swampedWorkers(
  count: number,
  many: (n: number) => TaskOptions,
  { others = [], backlog = 20_000 }: SwampOptions = {},
): Promise<{
  mill: Tidemill;
  startedAhead: (few: readonly TaskOptions[]) => Promise<number[]>;
}> {
  const database = await testDatabase();
  const mill = await database.connect();
  const orders = queue<"many" | "few">("orders");
  await mill.enqueueMany(
    orders,
    range(backlog).map((n) => ({ payload: "many", ...many(n) })),
  );
  const started = range(count).map((): string[] => []);
  const slots = gate();
  let isFull = false;
  let taken = 0;
  for (const mine of started) {
    const handler = orders.handle(async ({ payload }) => {
      mine.push(payload);
      await labour(1); // Slower than claims, so that the worker holds as many as it ever does.
      if (!isFull) return;
      taken += 1;
      await slots.opened;
    });
    const handlers = [handler, ...others];
    const options = { handlers, concurrency: CONCURRENCY, fairnessTurn: TURN };
    await (await database.connect()).startWorker({ ...BRISK, ...options });
  }
  await eventually(() => {
    for (const mine of started) expect(mine.length).toBeGreaterThan(1_000);
  });
  const claimed = "SELECT count(*)::int FROM tidemill.live_tasks WHERE state = 'running'";
  const expectSwamped = async (turns: number): Promise<void> => {
    const running = await readColumn<number>(database, `${claimed} GROUP BY leased_by`);
    expect(running.filter((tasks) => tasks > turns * TURN)).toHaveLength(count);
  };
  // Before the slots are full: how many a worker holds follows from how many it ends.
  await eventually(() => expectSwamped(7));
  isFull = true;
  await eventually(() => expect(taken).toBe(count * CONCURRENCY));
  await eventually(() => expectSwamped(5));
  return {
    mill,
    /** By worker: how many of the many start there from the commit of the few to their last. */
    async startedAhead(few) {
      const tasks = few.map((options) => ({ payload: "few" as const, ...options }));
      const handles = await mill.enqueueMany(orders, tasks);
      const before = started.map((mine) => mine.length);
      // A worker that is full takes half a turn at least; the rest comes as slots come free.
      const areClaimed = `${claimed} AND payload = '"few"' GROUP BY leased_by`;
      const enough = Math.min(few.length / count, TURN / 2);
      await eventually(async () => {
        const byWorker = await readColumn<number>(database, areClaimed);
        expect(byWorker.filter((tasks) => tasks >= enough)).toHaveLength(count);
      });
      slots.open();
      await Promise.all(handles.map((handle) => handle.result()));
      return started.map((mine, worker) => {
        const since = mine.slice(before[worker], mine.lastIndexOf("few") + 1);
        return since.filter((payload) => payload === "many").length;
      });
    },
  };
}

describe("priority", () => {
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
    const waiting = "SELECT count(*)::int FROM tidemill.live_tasks WHERE priority = 9";
    expect((await readColumn<number>(database, waiting))[0]).toBeGreaterThan(50);
    isFlooding = false;
  });
});

describe("high priority", () => {
  it("does not wait behind what is low and claimed already", async () => {
    const workers = await swampedWorkers(1, () => ({ priority: 0 }));
    expect(await workers.startedAhead(range(10).map(() => ({ priority: 9 })))).toEqual([0]);
  });
});

describe("another queue of no higher priority", () => {
  it("is left to a worker that has room for it", async () => {
    const mails = queue<number>("mails");
    const handler = mails.handle(() => {});
    const { mill } = await swampedWorkers(1, () => ({}), { others: [handler] });
    const handles = await mill.enqueueMany(
      mails,
      range(10).map((payload) => ({ payload })),
    );
    await mill.startWorker({ ...BRISK, handlers: [handler] });
    await Promise.all(handles.map((handle) => handle.result()));
  });
});

describe("tenants of one queue", () => {
  const big = { tenant: "big" };
  const small = { tenant: "small" };
  const key = (n: number) => ({ partitionKey: `key ${n}` });

  it(`wait for one turn of a tenant with ${BACKLOG} tasks, which fill the worker`, async () => {
    const workers = await swampedWorkers(1, () => big, { backlog: BACKLOG });
    const [ahead] = await workers.startedAhead(range(10).map(() => small));
    expect(ahead).toBeLessThanOrEqual(TURN);
  });

  it("wait for one turn in each of several workers", async () => {
    const workers = await swampedWorkers(2, () => big);
    const ahead = await workers.startedAhead(range(2 * TURN).map(() => small));
    for (const inOne of ahead) expect(inOne).toBeLessThanOrEqual(TURN);
  });

  it("wait for one turn when they have keys and the many have none", async () => {
    const workers = await swampedWorkers(1, () => big);
    const [ahead] = await workers.startedAhead(range(10).map((n) => ({ ...small, ...key(n) })));
    expect(ahead).toBeLessThanOrEqual(TURN);
  });

  it("wait for one turn when they have keys and all slots have long been taken", async () => {
    const workers = await swampedWorkers(1, () => big);
    // Each makes the worker look, and see that nothing ends here: it would hold ever less.
    for (const _ of range(15)) {
      await workers.mill.enqueue("orders", "many", big);
      await labour(25);
    }
    const [ahead] = await workers.startedAhead(range(10).map((n) => ({ ...small, ...key(n) })));
    expect(ahead).toBeLessThanOrEqual(TURN);
  });

  it("wait for one turn when the many have keys and they have none", async () => {
    const workers = await swampedWorkers(1, (n) => ({ ...big, ...key(n) }));
    const [ahead] = await workers.startedAhead(range(10).map(() => small));
    expect(ahead).toBeLessThanOrEqual(TURN);
  });

  it("wait for one turn of a tenant that never pauses", async () => {
    const database = await testDatabase();
    const mill = await database.connect();
    const orders = queue<number>("orders");
    const tasks = (tenant: string, count: number) =>
      range(count).map((payload) => ({ payload, tenant }));
    await mill.enqueueMany(orders, tasks("big", 20_000));
    const started: string[] = [];
    const handler = orders.handle(async ({ tenant }) => {
      started.push(tenant);
      await labour(40);
    });
    const options = { handlers: [handler], concurrency: 20, fairnessTurn: 40 };
    await mill.startWorker({ ...BRISK, ...options });
    await eventually(() => expect(started.length).toBeGreaterThan(300));
    const handles = await mill.enqueueMany(orders, tasks("small", 10));
    const before = started.length;
    await Promise.all(handles.map((handle) => handle.result()));
    const since = started.slice(before, started.lastIndexOf("small"));
    const ahead = since.filter((tenant) => tenant === "big").length;
    expect(ahead).toBeLessThanOrEqual(options.fairnessTurn + options.concurrency);
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
