import { describe, expect, it } from "vitest";
import { completed, failed, type QueueOptions, queue, type Tidemill } from "../../../src/index.ts";
import { type TestDatabase, testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { BRISK, gate, labour, range, readColumn, ringSettled, sampleMax } from "./scene.ts";

const RUNNING = "SELECT count(*)::int AS n FROM tidemill.tasks WHERE state = 'running'";

const HELD = `
  SELECT ((${RUNNING}) +
          (SELECT COALESCE(sum(cardinality(ids)), 0)
             FROM tidemill.task_packs WHERE claim_id IS NOT NULL))::int AS n`;

interface Scene {
  readonly database: TestDatabase;
  readonly mill: Tidemill;
}

async function open(): Promise<Scene> {
  const database = await testDatabase();
  return { database, mill: await database.connect() };
}

const payloads = (count: number): { payload: number }[] =>
  range(count).map((payload) => ({ payload }));

const countEnded = async (database: TestDatabase): Promise<number> =>
  (await readColumn<number>(database, "SELECT count(*)::int FROM tidemill.task_history"))[0] ?? 0;

/** The most claims that any window of this length holds, by the database's clock. */
async function mostClaims(database: TestDatabase, seconds: number, key?: string): Promise<number> {
  const [most] = await readColumn<number>(
    database,
    `SELECT max(n)::int FROM (
       SELECT count(*) OVER (ORDER BY claimed_at
                             RANGE BETWEEN CURRENT ROW AND $1::interval FOLLOWING) AS n
         FROM tidemill.task_history
        WHERE $2::text IS NULL OR partition_key = $2) AS one`,
    [`${seconds * 1_000_000 - 1} microseconds`, key ?? null],
  );
  return most ?? 0;
}

/** Work that lets nothing else run. */
function toil(ms: number): void {
  const endMs = performance.now() + ms;
  while (performance.now() < endMs);
}

describe("a concurrency limit", () => {
  it("that is reached keeps no retry of another queue of the key space waiting", async () => {
    const { mill } = await open();
    const full = queue<number>("receipts", { keySpace: "orders", limits: { concurrency: 1 } });
    const free = queue<number>("refunds", { keySpace: "orders", backoff: { baseSeconds: 0.01 } });
    const busy = gate();
    const handlers = [
      full.handle(() => busy.opened),
      free.handle(({ attempt }) => (attempt === 1 ? failed("once") : completed())),
    ];
    await mill.startWorker({ ...BRISK, handlers });
    const held = await mill.enqueue(full, 1, { partitionKey: "order:1" });
    await eventually(async () => expect((await mill.tasks.get(held.id)).state).toBe("running"));
    const retried = await mill.enqueue(free, 1, { partitionKey: "order:2" });
    await retried.result({ timeoutMs: 10_000 });
    busy.open();
    await held.result();
  });

  it("counts a task on probation", async () => {
    const { database, mill } = await open();
    const orders = queue<number>("orders", { limits: { concurrency: 1 } });
    const tasks = await mill.enqueueMany(orders, payloads(4));
    await database.pool.query(
      `UPDATE tidemill.tasks
          SET on_probation = TRUE, claim_order = nextval('tidemill.task_numbers'),
              lane = (SELECT lane FROM tidemill.task_lanes WHERE priority = -1)
        WHERE id = $1`,
      [tasks[3]?.id],
    );
    let isDone = false;
    const sampling = sampleMax(database, RUNNING, () => isDone);
    const handlers = [orders.handle(() => labour(50))];
    await mill.startWorker({ ...BRISK, handlers });
    await Promise.all(tasks.map((task) => task.result()));
    isDone = true;
    expect(await sampling).toBe(1);
  });

  it.each([
    ["concurrency", { concurrency: 1 }],
    ["rate", { rate: { count: 1, seconds: 0.1 } }],
  ] as const)("of 1 lets a keyed task that failed run again: %s", async (_what, limits) => {
    const { mill } = await open();
    const orders = queue<number>("orders", { limits, backoff: { kind: "fixed", baseSeconds: 0 } });
    const handler = orders.handle((task) => (task.attempt === 1 ? failed("no") : completed("ok")));
    await mill.startWorker({ ...BRISK, handlers: [handler] });
    const task = await mill.enqueue(orders, 1, { partitionKey: "key" });
    expect(await task.result({ timeoutMs: 8_000 })).toBe("ok");
  });

  it("of 0 holds everything until it is raised", async () => {
    const { mill } = await open();
    const orders = queue<number>("orders", { limits: { concurrency: 0 } });
    await mill.startWorker({ ...BRISK, handlers: [orders.handle(() => completed("ran"))] });
    const task = await mill.enqueue(orders, 1);
    await expect(task.result({ timeoutMs: 500 })).rejects.toThrow(/had not ended/);
    await mill.queues.setLimits("orders", { concurrency: 1 });
    expect(await task.result({ timeoutMs: 15_000 })).toBe("ran"); // It does not look by itself.
  });

  it("that comes while tasks run counts them, and gives no slot before they end", async () => {
    const { database, mill } = await open();
    const orders = queue<number>("orders");
    const busy = gate();
    const handlers = [orders.handle(() => busy.opened)];
    await mill.startWorker({ ...BRISK, handlers, concurrency: 4 });
    await mill.enqueueMany(orders, payloads(4));
    await eventually(async () => expect(await readColumn(database, RUNNING)).toEqual([4]));
    await mill.queues.setLimits("orders", { concurrency: 2 });
    const granted = "SELECT granted FROM tidemill.limit_slots WHERE queue = 'orders'";
    expect(await readColumn(database, granted)).toEqual([4]);
    const other = await database.connect();
    await other.startWorker({ ...BRISK, handlers: [orders.handle(() => labour(10))] });
    await mill.enqueueMany(orders, payloads(16));
    const { limitWaits } = other.taskMetrics;
    await eventually(() => expect(limitWaits.value({ queue: "orders" })).toBeGreaterThan(5));
    expect(await readColumn(database, RUNNING)).toEqual([4]);
    busy.open();
    await eventually(async () => expect(await countEnded(database)).toBeGreaterThanOrEqual(4));
    let isDone = false;
    const sampling = sampleMax(database, RUNNING, () => isDone);
    await eventually(async () => expect(await countEnded(database)).toBe(20));
    isDone = true;
    expect(await sampling).toBeLessThanOrEqual(2);
  });

  it("that a person lowers holds soon after, also while there is much to do", async () => {
    const { database, mill } = await open();
    const orders = queue<number>("orders", { limits: { concurrency: 8 } });
    const handler = orders.handle(() => labour(20));
    const TASKS = 6_000; // More than it can run before the last look.
    await mill.startWorker({ ...BRISK, handlers: [handler], concurrency: 20 });
    await mill.enqueueMany(orders, payloads(TASKS));
    const running = async (): Promise<number> =>
      (await readColumn<number>(database, RUNNING))[0] ?? 0;
    await eventually(async () => expect(await running()).toBe(8));
    await mill.queues.setLimits("orders", { concurrency: 2 });
    const samples: number[] = [];
    await eventually(
      async () => {
        samples.push(await running());
        const last = samples.slice(-10);
        expect(last).toHaveLength(10);
        expect(Math.max(...last)).toBeLessThanOrEqual(2);
      },
      { timeoutMs: 10_000 },
    );
    expect(await countEnded(database)).toBeLessThan(TASKS);
    await mill.queues.setLimits("orders", { concurrency: 12 });
    await eventually(async () => expect(await running()).toBeGreaterThan(2));
    await mill.queues.setLimits("orders", { concurrency: null });
    await eventually(async () => expect(await running()).toBeGreaterThan(12));
  });
});

it.each(["with keys", "without keys"])(
  "of any sort holds for what is taken in whole packs, %s",
  async (keys) => {
    const { database, mill } = await open();
    const limits = { concurrency: 2_000, rate: { count: 3_000, seconds: 0.5 } };
    const orders = queue<number>("orders", { limits });
    const tasks = 12_000;
    const withKey = ({
      payload,
    }: {
      payload: number;
    }): { payload: number; partitionKey: string } => ({
      payload,
      partitionKey: `key:${payload % 1_000}`,
    });
    const given = payloads(tasks);
    await mill.enqueueMany(orders, keys === "with keys" ? given.map(withKey) : given);
    let isDone = false;
    const held = sampleMax(database, HELD, () => isDone);
    for (const _worker of range(2)) {
      await mill.startWorker({ ...BRISK, handlers: [orders.handle(() => {})], concurrency: 20 });
    }
    await eventually(async () => expect(await countEnded(database)).toBe(tasks));
    isDone = true;
    expect(await held).toBeLessThanOrEqual(2_000);
    expect(await mostClaims(database, 0.5)).toBeLessThanOrEqual(3_000);
  },
);

describe("a rate limit", () => {
  const drain = async (options: QueueOptions, count: number, run: () => void): Promise<Scene> => {
    const scene = await open();
    const orders = queue<number>("orders", options);
    const handler = orders.handle(run);
    for (const _worker of range(3)) {
      await scene.mill.startWorker({ ...BRISK, handlers: [handler], concurrency: 5 });
    }
    await scene.mill.enqueueMany(orders, payloads(count));
    await eventually(async () => expect(await countEnded(scene.database)).toBe(count), {
      timeoutMs: 14_000,
    });
    return scene;
  };

  it("holds in every window of its period, over three workers", async () => {
    const limits = { rate: { count: 10, seconds: 0.5 } };
    const { database } = await drain({ limits }, 60, () => {});
    expect(await mostClaims(database, 0.5)).toBe(10);
  });

  it("holds when the process is busy between asking and claiming", async () => {
    const limits = { rate: { count: 5, seconds: 0.3 } };
    const { database } = await drain({ limits }, 50, () => toil(15));
    expect(await mostClaims(database, 0.3)).toBeLessThanOrEqual(5);
  });

  it("lets tasks start in a process that reads every answer late", async () => {
    const { database, mill } = await open();
    const orders = queue("orders", { limits: { rate: { count: 5, seconds: 0.2 } } });
    await mill.startWorker({ ...BRISK, handlers: [orders.handle(() => undefined)] });
    let isDone = false;
    const keepBusy = (): void => {
      toil(50);
      if (!isDone) setImmediate(keepBusy);
    };
    keepBusy();
    try {
      const keyed = payloads(10).map((task) => ({ ...task, partitionKey: "key" }));
      await mill.enqueueMany(orders, [...payloads(10), ...keyed]);
      await eventually(async () => expect(await countEnded(database)).toBe(20));
    } finally {
      isDone = true;
    }
    expect(await mostClaims(database, 0.2)).toBeLessThanOrEqual(5);
  });

  it("counts what started before a person made its period longer, and then goes on", async () => {
    const { database, mill } = await open();
    const orders = queue("orders", { limits: { rate: { count: 3, seconds: 0.5 } } });
    await mill.startWorker({ ...BRISK, handlers: [orders.handle(() => undefined)] });
    await mill.enqueueMany(orders, payloads(3));
    await eventually(async () => expect(await countEnded(database)).toBe(3));
    await mill.queues.setLimits("orders", { rate: { count: 3, seconds: 2 } });
    await mill.enqueueMany(orders, payloads(3));
    await eventually(async () => expect(await countEnded(database)).toBe(6));
    expect(await mostClaims(database, 2)).toBeLessThanOrEqual(3);
  });

  it("takes unused starts back from where they were taken", async () => {
    const { database, mill } = await open();
    const orders = queue("orders", { limits: { rate: { count: 20, seconds: 1 } } });
    await mill.enqueue(orders, 1);
    const session = await database.session();
    const idle = "00000000-0000-4000-8000-000000000001";
    const busy = "00000000-0000-4000-8000-000000000002";
    let slice = "";
    /** With the time at which it was over. */
    const take = async (worker: string, wanted: number): Promise<[starts: number, at: number]> => {
      const { rows } = await session.query<{ starts: number; slice: string; at: number }>(
        `SELECT starts, slice, extract(epoch FROM clock_timestamp())::float8 AS at
           FROM tidemill.take_limits('orders', $1, 0, $2, 0.1)`,
        [worker, wanted],
      );
      if (worker === idle) slice = rows[0]?.slice ?? "";
      return [rows[0]?.starts ?? 0, rows[0]?.at ?? 0];
    };
    const second = "SELECT extract(epoch FROM clock_timestamp())::float8 AS at";
    const now = async (): Promise<number> =>
      (await session.query<{ at: number }>(second)).rows[0]?.at ?? 0;
    const startedAt = await now();
    expect((await take(idle, 10))[0]).toBe(10);
    await eventually(async () => expect(await now()).toBeGreaterThan(startedAt + 0.3));
    const usedAt = await now();
    expect((await take(busy, 10))[0]).toBe(10); // And uses them.
    await session.query("SELECT tidemill.use_starts('orders', $1, 0, 10, NULL)", [slice]);
    let used = 10;
    await eventually(async () => {
      const [starts, at] = await take(busy, 20);
      const isOver = at > usedAt + 0.95;
      if (!isOver) used += starts; // Those of the next period are none of this one.
      expect(isOver).toBe(true);
    });
    expect(used).toBeLessThanOrEqual(20);
  });
});

describe("limits of keys", () => {
  it("hold the rate of one key in every window of its period", async () => {
    const { database, mill } = await open();
    const orders = queue<number>("orders", { limits: { keyRate: { count: 4, seconds: 1 } } });
    await mill.startWorker({ ...BRISK, handlers: [orders.handle(() => undefined)] });
    const feed = (key: string, count: number) =>
      mill.enqueueMany(
        orders,
        payloads(count).map((task) => ({ ...task, partitionKey: key })),
      );
    const [early] = await feed("early", 1);
    await early?.result();
    await eventually(async () => {
      // The allowance of every key is full by now.
      const [isFull] = await readColumn<boolean>(
        database,
        "SELECT NOW() > max(claimed_at) + INTERVAL '1.1 seconds' FROM tidemill.task_history",
      );
      expect(isFull).toBe(true);
    });
    await Promise.all([feed("a", 10), feed("b", 10)]);
    await eventually(async () => expect(await countEnded(database)).toBe(21), {
      timeoutMs: 10_000,
    });
    expect(await mostClaims(database, 1, "a")).toBe(4);
    expect(await mostClaims(database, 1, "b")).toBe(4);
  });

  it("count every attempt of a task that fails", async () => {
    const { database, mill } = await open();
    const orders = queue<number>("orders", {
      limits: { keyRate: { count: 1, seconds: 0.5 } },
      backoff: { kind: "fixed", baseSeconds: 0 },
      maxAttempts: 3,
    });
    const claims: number[] = [];
    const claimedAt = "SELECT extract(epoch FROM claimed_at)::float8 FROM tidemill.tasks";
    const handler = orders.handle(async () => {
      claims.push(...(await readColumn<number>(database, claimedAt)));
      return failed("no");
    });
    await mill.startWorker({ ...BRISK, handlers: [handler] });
    await mill.enqueue(orders, 1, { partitionKey: "key" });
    await eventually(async () => expect(await mill.deadLetters.list()).toHaveLength(1));
    const waits = claims.slice(1).map((at, place) => at - (claims[place] ?? 0));
    expect(waits).toHaveLength(2);
    // No less than the period, and not much more: the head is looked for when it may start.
    for (const seconds of waits) {
      expect(seconds).toBeGreaterThanOrEqual(0.5);
      expect(seconds).toBeLessThan(4);
    }
  });

  it("let a person change the rate of keys", async () => {
    const { database, mill } = await open();
    const orders = queue<number>("orders", { limits: { keyRate: { count: 1, seconds: 600 } } });
    await mill.startWorker({ ...BRISK, handlers: [orders.handle(() => undefined)] });
    await mill.queues.setLimits("orders", { keyRate: { count: 50, seconds: 0.1 } });
    const tasks = payloads(5).map((task) => ({ ...task, partitionKey: "key" }));
    await mill.enqueueMany(orders, tasks);
    await eventually(async () => expect(await countEnded(database)).toBe(5));
  });

  it("run as many of a key as its concurrency allows, in any order", async () => {
    const { database, mill } = await open();
    const orders = queue<number>("orders", { keyConcurrency: 3 });
    const slow = gate();
    const seen: number[] = [];
    let running = 0;
    let most = 0;
    const handler = orders.handle(async ({ payload }) => {
      running += 1;
      most = Math.max(most, running);
      if (payload === 0) await slow.opened;
      else await labour(2);
      running -= 1;
      seen.push(payload);
    });
    for (const _worker of range(3)) {
      await mill.startWorker({ ...BRISK, handlers: [handler], concurrency: 10 });
    }
    await ringSettled(mill, 3);
    let isDone = false;
    const sampling = sampleMax(database, RUNNING, () => isDone);
    const tasks = payloads(60).map((task) => ({ ...task, partitionKey: "key" }));
    await mill.enqueueMany(orders, tasks);
    await eventually(() => expect(seen).toHaveLength(59));
    slow.open();
    await eventually(async () => expect(await countEnded(database)).toBe(60));
    isDone = true;
    expect(await sampling).toBe(3);
    expect(most).toBe(3);
    expect(seen.at(-1)).toBe(0);
  });
});

describe("the concurrency of a worker", () => {
  it("bounds its handlers, and that of a handler bounds one queue", async () => {
    const { database, mill } = await open();
    const counts = new Map([
      ["few", { now: 0, most: 0 }],
      ["many", { now: 0, most: 0 }],
      ["all", { now: 0, most: 0 }],
    ]);
    const enter = (name: string, change: 1 | -1): void => {
      const count = counts.get(name);
      if (count === undefined) throw new Error(name);
      count.now += change;
      count.most = Math.max(count.most, count.now);
    };
    const handle = (name: string, concurrency?: number) =>
      queue<number>(name).handle(
        async () => {
          enter(name, 1);
          enter("all", 1);
          await labour(3);
          enter(name, -1);
          enter("all", -1);
        },
        concurrency === undefined ? {} : { concurrency },
      );
    const handlers = [handle("few", 2), handle("many")];
    await mill.startWorker({ ...BRISK, handlers, concurrency: 5 });
    await mill.enqueueMany("few", payloads(80));
    await mill.enqueueMany("many", [
      ...payloads(60),
      ...range(40).map((n) => ({ payload: n, partitionKey: `key:${n % 20}` })),
    ]);
    await eventually(async () => expect(await countEnded(database)).toBe(180));
    expect(counts.get("few")?.most).toBe(2);
    expect(counts.get("all")?.most).toBe(5);
  });
});
