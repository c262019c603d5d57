import { describe, expect, it } from "vitest";
import {
  abandon,
  completed,
  failed,
  type QueueOptions,
  queue,
  type TaskFunction,
  type Tidemill,
  type WorkerOptions,
} from "../../../src/index.ts";
import { type TestDatabase, testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { aborted, BRISK, type Gate, gate, range, readColumn } from "./scene.ts";

interface Scene {
  readonly database: TestDatabase;
  readonly mill: Tidemill;
}

async function open(): Promise<Scene> {
  const database = await testDatabase();
  return { database, mill: await database.connect() };
}

const ORDERS = queue<number>("orders");

async function work<Payload>(
  mill: Tidemill,
  run: TaskFunction<Payload, unknown>,
  options: QueueOptions = {},
  worker: Partial<WorkerOptions> = {},
): Promise<void> {
  const handler = queue<Payload>("orders", options).handle(run);
  await mill.startWorker({ ...BRISK, handlers: [handler], ...worker });
}

const states = async (mill: Tidemill, ids: readonly string[]): Promise<string[]> =>
  await Promise.all(ids.map(async (id) => (await mill.tasks.get(id)).state));

describe("cancel", () => {
  it("ends a task that waits, which then never runs", async () => {
    const { mill } = await open();
    const pending = await mill.enqueue(ORDERS, 1);
    const keyed = await mill.enqueue(ORDERS, 2, { partitionKey: "key" });
    const scheduled = await mill.enqueue(ORDERS, 3, { delaySeconds: 0.2 });
    for (const { id } of [pending, keyed, scheduled]) {
      expect(await mill.tasks.cancel(id, { reason: "changed my mind" })).toBe("cancelled");
      const { state, reason } = await mill.tasks.get(id);
      expect([state, reason]).toEqual(["cancelled", "changed my mind"]);
      await expect(mill.tasks.cancel(id)).rejects.toThrow(
        `task ${id} is cancelled: there is nothing to cancel`,
      );
    }
    const seen: number[] = [];
    await work<number>(mill, (task) => void seen.push(task.payload));
    const last = await mill.enqueue(ORDERS, 4, { delaySeconds: 0.3 });
    await last.result();
    expect(seen).toEqual([4]);
    await expect(mill.tasks.cancel(last.id)).rejects.toThrow(/is completed: there is nothing/);
  });

  it("tells each of many handlers within a second, while leases are being renewed", async () => {
    const { mill } = await open();
    const heard = new Map<string, number>();
    await work(
      mill,
      async (task, { signal }) => {
        heard.set(task.id, Number.NaN);
        await aborted(signal);
        heard.set(task.id, performance.now());
      },
      {},
      { leaseSeconds: 6, concurrency: 100 },
    );
    // Enqueued one by one, so that at any time the lease of some is due for renewal.
    const ids: string[] = [];
    for (const n of range(60)) {
      ids.push((await mill.enqueue(ORDERS, n)).id);
      await eventually(() => expect(heard.size).toBe(n + 1));
    }
    const delays: number[] = [];
    for (const id of ids) {
      const cancelledAtMs = performance.now();
      await mill.tasks.cancel(id);
      await eventually(() => expect(heard.get(id)).not.toBeNaN());
      delays.push((heard.get(id) ?? 0) - cancelledAtMs);
    }
    expect(Math.max(...delays)).toBeLessThan(1_000);
  });

  it("loses against a handler that completes first, and wins against a failure", async () => {
    const { mill } = await open();
    const gates = new Map<number, Gate>([
      [1, gate()],
      [2, gate()],
    ]);
    const running: number[] = [];
    await work<number>(mill, async ({ payload }) => {
      running.push(payload);
      await gates.get(payload)?.opened;
      return payload === 1 ? completed("done") : failed("broken");
    });
    const one = await mill.enqueue(ORDERS, 1);
    const two = await mill.enqueue(ORDERS, 2);
    await eventually(() => expect(running).toHaveLength(2));
    await mill.tasks.cancel(one.id);
    await mill.tasks.cancel(two.id);
    gates.get(1)?.open();
    gates.get(2)?.open();
    expect(await one.result()).toBe("done");
    await expect(two.result()).rejects.toMatchObject({ state: "cancelled" });
  });

  it("of a head that waits for its next attempt lets its key flow", async () => {
    const { mill } = await open();
    const seen: number[] = [];
    await work<number>(
      mill,
      ({ payload }) => {
        seen.push(payload);
        return payload === 1 ? failed("no") : undefined;
      },
      { backoff: { kind: "fixed", baseSeconds: 600 } },
    );
    const [head, next] = await mill.enqueueMany(
      ORDERS,
      [1, 2].map((payload) => ({ payload, partitionKey: "key" })),
    );
    await eventually(async () => {
      expect(await mill.tasks.failures(head?.id ?? "")).toHaveLength(1);
    });
    await mill.tasks.cancel(head?.id ?? "");
    await next?.result();
    expect(seen).toEqual([1, 2]);
  });
});

describe("retry", () => {
  it("runs at once what was scheduled, failed, dead or cancelled", async () => {
    const { mill } = await open();
    const isBroken = { now: true };
    await work<number>(
      mill,
      ({ payload }) => {
        if (payload === 2 && isBroken.now) return failed("refused", { retry: false });
        if (payload === 3 && isBroken.now) return failed("broken");
        return completed(payload);
      },
      { maxAttempts: 1 },
    );
    const scheduled = await mill.enqueue(ORDERS, 1, { delaySeconds: 600 });
    const refused = await mill.enqueue(ORDERS, 2);
    const dead = await mill.enqueue(ORDERS, 3, { maxAttempts: 1 });
    const cancelled = await mill.enqueue(ORDERS, 4, { delaySeconds: 600 });
    await mill.tasks.cancel(cancelled.id);
    const all = [scheduled, refused, dead, cancelled];
    const ids = all.map(({ id }) => id);
    await eventually(async () =>
      expect(await states(mill, ids)).toEqual(["scheduled", "failed", "dead", "cancelled"]),
    );
    isBroken.now = false;
    for (const id of ids) await mill.tasks.retry(id);
    expect(await Promise.all(all.map((one) => one.result()))).toEqual([1, 2, 3, 4]);
    expect((await mill.tasks.get(dead.id)).attempt).toBe(1);
    await expect(mill.tasks.retry(dead.id)).rejects.toThrow(
      `task ${dead.id} is completed: there is nothing to retry`,
    );
  });

  it("does not wait for the backoff of a keyed head", async () => {
    const { mill } = await open();
    const seen: string[] = [];
    await work<number>(
      mill,
      ({ payload, attempt }) => {
        seen.push(`${payload}#${attempt}`);
        return payload === 1 && attempt === 1 ? failed("no") : undefined;
      },
      { backoff: { kind: "fixed", baseSeconds: 600 } },
    );
    const [head, next] = await mill.enqueueMany(
      ORDERS,
      [1, 2].map((payload) => ({ payload, partitionKey: "key" })),
    );
    await eventually(async () => {
      expect(await mill.tasks.failures(head?.id ?? "")).toHaveLength(1);
    });
    await mill.tasks.retry(head?.id ?? "");
    await next?.result();
    expect(seen).toEqual(["1#1", "1#2", "2#1"]);
  });
});

describe("tasks", () => {
  it("are listed newest first, by filter and page by page", async () => {
    const { mill } = await open();
    const others = queue<number>("others");
    const ids = (
      await mill.enqueueMany(
        ORDERS,
        range(5).map((payload) => ({ payload })),
      )
    ).map(({ id }) => id);
    const other = await mill.enqueue(others, 9, { tenant: "acme", partitionKey: "key" });
    const late = await mill.enqueue(others, 9, { delaySeconds: 60 });
    await mill.tasks.cancel(ids[4] ?? "");
    const listed = async (filter: Parameters<typeof mill.tasks.list>[0]): Promise<string[]> =>
      (await mill.tasks.list(filter)).map(({ id }) => id);
    const newest = [late.id, other.id, ...ids.toReversed()];
    expect(await listed({})).toEqual(newest);
    expect(await listed({ queue: "others" })).toEqual([late.id, other.id]);
    expect(await listed({ tenant: "acme" })).toEqual([other.id]);
    expect(await listed({ partitionKey: "key" })).toEqual([other.id]);
    expect(await listed({ state: "scheduled" })).toEqual([late.id]);
    expect(await listed({ state: "cancelled" })).toEqual([ids[4]]);
    expect(await listed({ state: "dead" })).toEqual([]);
    const first = await listed({ limit: 3 });
    const second = await listed({ limit: 3, before: first.at(-1) ?? "" });
    const third = await listed({ limit: 3, before: second.at(-1) ?? "" });
    expect([first, second, third]).toEqual([
      newest.slice(0, 3),
      newest.slice(3, 6),
      newest.slice(6),
    ]);
    await expect(mill.tasks.get(other.id, { tenant: "default" })).rejects.toThrow(/no task/);
    expect(await mill.tasks.get(other.id, { tenant: "acme" })).toMatchObject({ payload: 9 });
  });
});

describe("a paused queue", () => {
  it("has nothing claimed after pause() resolved, under load, until it is resumed", async () => {
    const { database, mill } = await open();
    const ran: number[] = [];
    const run = async (task: { payload: number }): Promise<void> => {
      await new Promise((resolve) => setImmediate(resolve));
      ran.push(task.payload);
    };
    for (const _worker of range(2)) await work<number>(mill, run);
    const other = await database.connect();
    let count = 0;
    for (const round of range(4)) {
      await mill.enqueueMany(
        ORDERS,
        range(300).map((payload) => ({ payload })),
      );
      await mill.enqueueMany(
        ORDERS,
        range(100).map((n) => ({ payload: n, partitionKey: `key:${n % 10}` })),
      );
      count += 400;
      await eventually(() => expect(ran.length).toBeGreaterThan(round * 400), { everyMs: 1 });
      await other.queues.pause("orders", { reason: "maintenance" });
      const ended = `SELECT (SELECT count(*) FROM tidemill.task_history)
        + (SELECT count(*) FROM tidemill.live_tasks WHERE state = 'running')`;
      const [atPause] = await readColumn<string>(database, ended);
      await eventually(async () => {
        const running = "SELECT id FROM tidemill.live_tasks WHERE state = 'running'";
        expect(await readColumn(database, running)).toEqual([]);
      });
      const [later] = await readColumn<string>(database, ended);
      expect([round, later]).toEqual([round, atPause]);
      expect(await other.queues.list()).toMatchObject([
        { isPaused: true, pauseReason: "maintenance" },
      ]);
      await other.queues.resume("orders");
      await eventually(() => expect(ran).toHaveLength(count), { timeoutMs: 8_000 });
    }
  });

  it("is exact for a claim that waits for a lock while the queue is paused", async () => {
    const { database, mill } = await open();
    const { id } = await mill.enqueue(ORDERS, 1, { partitionKey: "key" });
    const holder = await database.session();
    await holder.query("BEGIN");
    await holder.query("SELECT FROM tidemill.tasks WHERE id = $1 FOR UPDATE", [id]);
    const seen: number[] = [];
    await work<number>(mill, (task) => void seen.push(task.payload));
    const blocked = `SELECT pid FROM pg_stat_activity
      WHERE wait_event_type = 'Lock' AND datname = current_database()`;
    await eventually(async () => expect(await readColumn(database, blocked)).toHaveLength(1));
    const other = await database.connect();
    const pausing = other.queues.pause("orders");
    const isFirst = await Promise.race([
      pausing.then(() => true),
      eventually(async () => {
        expect(await readColumn(database, blocked)).toHaveLength(2);
        return false;
      }),
    ]);
    await holder.query("ROLLBACK");
    await pausing;
    if (!isFirst) return; // The pause waited for the claim: nothing is claimed after it.
    await eventually(async () => {
      const claiming = `SELECT pid FROM pg_stat_activity
        WHERE application_name LIKE '% tasks' AND state = 'active'
          AND datname = current_database()`;
      expect(await readColumn(database, claiming)).toEqual([]);
    });
    const claimed = await readColumn(
      database,
      `SELECT id FROM tidemill.tasks WHERE lease_generation > 0
        UNION ALL SELECT id FROM tidemill.task_history`,
    );
    expect([claimed, seen]).toEqual([[], []]);
  });
});

describe("a paused key", () => {
  const feed = async (mill: Tidemill, key: string, payloads: readonly number[]): Promise<void> => {
    const tasks = payloads.map((payload) => ({ payload, partitionKey: key }));
    await mill.enqueueMany(ORDERS, tasks);
  };

  it("stops, also what of it waits in a worker, and goes on in order", async () => {
    const { database, mill } = await open();
    const first = gate();
    const seen: string[] = [];
    await work<number>(mill, async ({ payload, partitionKey }) => {
      seen.push(`${partitionKey}${payload}`);
      if (partitionKey === "a" && payload === 1) await first.opened;
    });
    await feed(mill, "a", [1, 2, 3]);
    await eventually(async () => {
      const held = "SELECT id FROM tidemill.tasks WHERE state = 'running'";
      expect(await readColumn(database, held)).toHaveLength(3);
    });
    await mill.queues.pauseKey(ORDERS, "a", { reason: "the shop is closed" });
    await eventually(async () => {
      const held = "SELECT id FROM tidemill.tasks WHERE state = 'running'";
      expect(await readColumn(database, held)).toHaveLength(1);
    });
    first.open();
    await feed(mill, "b", [1, 2]);
    await eventually(() => expect(seen).toEqual(["a1", "b1", "b2"]));
    await feed(mill, "a", [4]);
    expect(await mill.queues.resumeKey("orders", "a")).toBe(true);
    await eventually(() => expect(seen).toEqual(["a1", "b1", "b2", "a2", "a3", "a4"]));
    expect(await mill.queues.resumeKey("orders", "a")).toBe(false);
    const attempts = await readColumn(
      database,
      "SELECT DISTINCT attempt FROM tidemill.task_history",
    );
    expect(attempts).toEqual([1]);
  });

  it("flows again by itself at its time, and is one tenant's", async () => {
    const { database, mill } = await open();
    const seen: string[] = [];
    await work<number>(mill, ({ tenant, payload }) => void seen.push(`${tenant}${payload}`));
    const [until] = await readColumn<Date>(database, "SELECT NOW() + INTERVAL '1 second'");
    if (until === undefined) throw new Error("no time");
    await mill.queues.pauseKey(ORDERS, "key", { until });
    await mill.enqueue(ORDERS, 1, { partitionKey: "key" });
    await mill.enqueue(ORDERS, 2, { partitionKey: "key", tenant: "acme" });
    await eventually(() => expect(seen).toEqual(["acme2", "default1"]));
    const early = await readColumn(
      database,
      "SELECT id FROM tidemill.task_history WHERE tenant = 'default' AND claimed_at < $1",
      [until],
    );
    expect(early).toEqual([]);
  });
});

describe("a queue that parks", () => {
  const parked = async (
    maxAttempts: number,
    isBroken: { now: boolean },
  ): Promise<Scene & { seen: number[]; ids: string[] }> => {
    const scene = await open();
    const parks = queue<number>("orders", {
      onFailure: "park",
      maxAttempts,
      backoff: { kind: "fixed", baseSeconds: 0 },
    });
    const tasks = [1, 2, 3].map((payload) => ({ payload, partitionKey: "key" }));
    const ids = (await scene.mill.enqueueMany(parks, tasks)).map(({ id }) => id);
    const seen: number[] = [];
    const go = gate();
    const handler = parks.handle(async ({ payload }) => {
      seen.push(payload);
      await go.opened;
      return payload === 1 && isBroken.now ? failed("broken") : undefined;
    });
    await scene.mill.startWorker({ ...BRISK, handlers: [handler] });
    // All three are held by the worker: two wait in its memory.
    await eventually(async () => {
      const held = "SELECT id FROM tidemill.tasks WHERE state = 'running'";
      expect(await readColumn(scene.database, held)).toHaveLength(3);
    });
    go.open();
    await eventually(async () => {
      expect(await states(scene.mill, ids.slice(0, 1))).toEqual(["dead"]);
    });
    const other = await scene.mill.enqueue(parks, 9, { partitionKey: "other" });
    await other.result();
    return { ...scene, seen, ids };
  };

  it.each([1, 2])("holds back the key of a head dead after %i attempts", async (maxAttempts) => {
    const isBroken = { now: true };
    const { mill, seen, ids } = await parked(maxAttempts, isBroken);
    expect(await states(mill, ids)).toEqual(["dead", "pending", "pending"]);
    isBroken.now = false;
    expect(await mill.deadLetters.redrive({ partitionKey: "key" })).toBe(1);
    await eventually(async () =>
      expect(await states(mill, ids)).toEqual(["completed", "completed", "completed"]),
    );
    expect(seen.filter((n) => n !== 9).slice(maxAttempts)).toEqual([1, 2, 3]);
  });

  it("lets the rest go when the dead head is purged", async () => {
    const { mill, seen, ids } = await parked(2, { now: true });
    expect(await mill.deadLetters.purge({ ids: [ids[0] ?? ""] })).toBe(1);
    await eventually(async () =>
      expect(await states(mill, ids.slice(1))).toEqual(["completed", "completed"]),
    );
    expect(seen.slice(-2)).toEqual([2, 3]);
    await expect(mill.tasks.get(ids[0] ?? "")).rejects.toThrow(/there is no task/);
  });
});

describe("dead letters", () => {
  const die = async (isBroken: { now: boolean }): Promise<Scene & { seen: unknown[] }> => {
    const scene = await open();
    const seen: unknown[] = [];
    const handle = (name: string) =>
      queue(name, { maxAttempts: 1 }).handle(({ payload }) => {
        if (isBroken.now) return failed("broken");
        seen.push(payload);
        return undefined;
      });
    const handlers = [handle("orders"), handle("others")];
    await scene.mill.startWorker({ ...BRISK, handlers });
    await scene.mill.enqueueMany("orders", [
      { payload: 1, kind: "a" },
      { payload: 2, kind: "b" },
      { payload: 3, tenant: "acme" },
    ]);
    await scene.mill.enqueue("others", 4);
    await eventually(async () => expect(await scene.mill.deadLetters.list()).toHaveLength(4));
    isBroken.now = false;
    return { ...scene, seen };
  };

  it("are listed, edited and redriven by filter", async () => {
    const { mill, seen } = await die({ now: true });
    const list = await mill.deadLetters.list();
    expect(list.map(({ payload }) => payload)).toEqual([4, 3, 2, 1]);
    expect(await mill.deadLetters.list({ tenant: "acme" })).toMatchObject([{ payload: 3 }]);
    expect(await mill.deadLetters.list({ queue: "others" })).toMatchObject([{ payload: 4 }]);
    expect(await mill.deadLetters.list({ limit: 1, before: list[1]?.id ?? "" })).toMatchObject([
      { payload: 2 },
    ]);
    await mill.deadLetters.edit(list[2]?.id ?? "", { edited: true });
    expect(await mill.deadLetters.redrive({ queue: "orders", kind: "b" })).toBe(1);
    await eventually(() => expect(seen).toEqual([{ edited: true }]));
    expect(await mill.deadLetters.redrive({ cause: "worker_lost" })).toBe(0);
    expect(await mill.deadLetters.redrive({ ids: [list[3]?.id ?? ""] })).toBe(1);
    expect(await mill.deadLetters.redrive({ tenant: "acme" })).toBe(1);
    await eventually(() => expect(seen).toHaveLength(3));
    expect(await mill.deadLetters.redrive()).toBe(1);
    await eventually(() => expect(new Set(seen)).toEqual(new Set([1, 3, 4, { edited: true }])));
    expect(await mill.deadLetters.list()).toEqual([]);
  });

  it("run again before what waits behind them, in the order of their key", async () => {
    const { mill } = await open();
    const isBroken = { now: true };
    const seen: number[] = [];
    const hold = gate();
    await work<number>(
      mill,
      async ({ payload }) => {
        if (payload < 4 && isBroken.now) return failed("broken");
        if (payload === 4) await hold.opened;
        seen.push(payload);
        return undefined;
      },
      { maxAttempts: 1 },
    );
    const key = { partitionKey: "key" };
    await mill.enqueueMany(
      ORDERS,
      [1, 2, 3].map((payload) => ({ payload, ...key, maxAttempts: 1 })),
    );
    await eventually(async () => expect(await mill.deadLetters.list()).toHaveLength(3));
    await mill.queues.pauseKey(ORDERS, "key");
    await mill.enqueueMany(
      ORDERS,
      [4, 5].map((payload) => ({ payload, ...key })),
    );
    isBroken.now = false;
    hold.open();
    expect(await mill.deadLetters.redrive({ partitionKey: "key" })).toBe(3);
    await mill.queues.resumeKey(ORDERS, "key");
    await eventually(() => expect(seen).toEqual([1, 2, 3, 4, 5]));
  });
});

describe("what a person changes", () => {
  it.each([
    ["pause", "queues", ({ queues }: Tidemill) => queues.pause("orders")],
    ["resume", "queues", ({ queues }: Tidemill) => queues.resume("orders")],
    ["setLimits", "queues", ({ queues }: Tidemill) => queues.setLimits("orders", { rate: null })],
    ["resetLimits", "queues", ({ queues }: Tidemill) => queues.resetLimits("orders")],
    ["pauseKey", "key_holds", ({ queues }: Tidemill) => queues.pauseKey("orders", "key")],
  ] as const)("is told to all workers in the same transaction: %s", async (_act, table, act) => {
    const { database, mill } = await open();
    await mill.enqueue(ORDERS, 1);
    await act(mill);
    const one = `SELECT count(*)::int FROM tidemill.${table} AS changed
                   JOIN tidemill.cluster_changes AS told ON told.xmin = changed.xmin`;
    expect(await readColumn(database, one)).toEqual([1]);
  });
});

describe("the counts of a queue", () => {
  it("are right after many different ends", async () => {
    const { database, mill } = await open();
    const running = gate();
    await work<number>(
      mill,
      async ({ payload, attempt }) => {
        if (payload % 7 === 1) return failed("no", { retry: false });
        if (payload % 7 === 2) return failed("no");
        if (payload % 7 === 3 && attempt === 1) throw new Error("once");
        if (payload === 700) await running.opened;
        if (payload === 5) return abandon();
        return completed();
      },
      { maxAttempts: 2, backoff: { kind: "fixed", baseSeconds: 0.1 } },
      { concurrency: 50 },
    );
    const tasks = range(210).map((payload) => ({
      payload: payload === 5 ? 6 : payload,
      priority: payload % 10,
      maxAttempts: 2,
      ...(payload % 2 === 0 ? { partitionKey: `key:${payload % 20}` } : {}),
    }));
    await mill.enqueueMany(ORDERS, tasks);
    const late = await mill.enqueueMany(
      ORDERS,
      [1, 2, 3].map((payload) => ({ payload, priority: 3, delaySeconds: 600 })),
    );
    await mill.enqueue(ORDERS, 700, { priority: 8 });
    await mill.tasks.cancel(late[0]?.id ?? "");
    const expected = { depths: { 3: 2, 8: 1 }, running: 1, dead: 30 };
    await eventually(async () =>
      expect(await mill.queues.list()).toEqual([expect.objectContaining(expected)]),
    );
    const [live] = await readColumn(database, "SELECT count(*)::int FROM tidemill.live_tasks");
    expect(live).toBe(3);
    expect(await mill.deadLetters.purge({ queue: "orders" })).toBe(30);
    running.open();
    await eventually(async () => {
      expect(await mill.queues.list()).toEqual([
        expect.objectContaining({ depths: { 3: 2 }, running: 0, dead: 0 }),
      ]);
    });
  });
});
