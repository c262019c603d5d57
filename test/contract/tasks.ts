import { describe, expect, it } from "vitest";
import {
  abandon,
  completed,
  failed,
  LeaseLostError,
  nack,
  type Outcome,
  queue,
  TaskCancelledError,
  type TaskHandler,
  type Tidemill,
  type Worker,
  type WorkerOptions,
} from "../../src/index.ts";
import {
  aborted,
  gate,
  labour,
  range,
  readColumn,
  readStored,
  ringSettled,
  sampleMax,
} from "../integration/tasks/scene.ts";
import { type TestDatabase, testDatabase } from "../support/database.ts";
import { eventually } from "../support/eventually.ts";
import {
  eventuallyDone,
  expectCompletedOnce,
  readHistory,
  readLive,
} from "../support/task-runs.ts";
import { type ContractSetup, describeIn } from "./setup.ts";

interface Cluster {
  readonly database: TestDatabase;
  /** Enqueues and waits; its process-local wake-ups reach none of the workers. */
  readonly mill: Tidemill;
  /** A worker on connections of its own. */
  readonly start: (handler: TaskHandler, options?: Partial<WorkerOptions>) => Promise<Worker>;
}

const ORDERS = queue<number>("orders", { backoff: { kind: "fixed", baseSeconds: 0 } });

const payloads = (count: number, from = 0): { payload: number }[] =>
  range(count).map((n) => ({ payload: from + n }));

/** What every way of connecting must keep of tasks. */
export function taskContract(name: string, setup: ContractSetup): void {
  describeIn(setup, name, () => {
    const newCluster = async (): Promise<Cluster> => {
      const database = await testDatabase();
      return {
        database,
        mill: await setup.connect(database),
        start: async (handler, more) => {
          const own = await setup.connect(database);
          return await own.startWorker({ ...setup.options, handlers: [handler], ...more });
        },
      };
    };

    describe("a task", () => enqueueTests(newCluster));
    describe("a task that waits", () => waitingTests(newCluster));
    describe("a task whose handler", () => outcomeTests(newCluster));
    describe("a lease", () => leaseTests(newCluster));
    describe("tasks of many workers", () => clusterTests(newCluster));
  });
}

function enqueueTests(newCluster: () => Promise<Cluster>): void {
  it("is enqueued, claimed, handled and kept in history with its result", async () => {
    const { database, mill, start } = await newCluster();
    const mails = queue<{ to: string }, { sent: boolean }>("mails");
    const seen: unknown[] = [];
    const handler = mails.handle((task, context) => {
      seen.push([task.id, task.payload, task.attempt, context.token.generation]);
      return completed({ sent: true });
    });
    await start(handler);
    const handle = await mill.enqueue(mails, { to: "ada" });
    expect(await handle.result()).toEqual({ sent: true });
    expect(await mill.result(handle.id)).toEqual({ sent: true });
    expect(seen).toEqual([[handle.id, { to: "ada" }, 1, 1]]);
    expect(await readHistory(database.pool)).toMatchObject([
      { id: handle.id, state: "completed", result: '{"sent":true}' },
    ]);
    expect(await readStored(database)).toMatchObject({ tasks: 0 });
  });

  it("of the caller's transaction is seen by others after the commit, and only then", async () => {
    const { database, mill, start } = await newCluster();
    const seen: number[] = [];
    await start(ORDERS.handle(({ payload }) => void seen.push(payload)));
    const undone = mill.transaction(async (tx) => {
      await mill.enqueue(ORDERS, 0, { tx });
      throw new Error("changed my mind");
    });
    await expect(undone).rejects.toThrow("changed my mind");
    const handles = await mill.transaction(async (tx) => {
      const one = await mill.enqueue(ORDERS, 1, { tx });
      const many = await mill.enqueueMany(ORDERS, payloads(2, 2), { tx });
      expect(await readStored(database)).toMatchObject({ tasks: 0, tally: 0 });
      return [one, ...many];
    });
    await Promise.all(handles.map((handle) => handle.result()));
    expect(seen).toEqual([1, 2, 3]);
  });

  it("of a bulk waits in a pack, and is done once by workers of any pace", async () => {
    const { database, mill, start } = await newCluster();
    const seen: number[] = [];
    const handler = ORDERS.handle(({ payload }) => {
      seen.push(payload);
      return completed({ twice: payload * 2 });
    });
    const handles = await mill.enqueueMany(ORDERS, payloads(1_000));
    const packed = "SELECT sum(cardinality(ids))::int FROM tidemill.task_packs";
    expect(await readColumn(database, packed)).toEqual([1_000]);
    await start(handler, { concurrency: 50 });
    await start(handler, { concurrency: 2 });
    for (const from of [1_000, 2_000]) {
      handles.push(...(await mill.enqueueMany(ORDERS, payloads(1_000, from))));
    }
    await eventuallyDone(database, 3_000);
    expect(seen.toSorted((a, b) => a - b)).toEqual(range(3_000));
    for (const n of [0, 1_471, 2_999]) {
      expect(await handles[n]?.result()).toEqual({ twice: 2 * n });
    }
  });
}

function waitingTests(newCluster: () => Promise<Cluster>): void {
  it("for its delay or its instant is scheduled until then, and then runs", async () => {
    const { database, mill, start } = await newCluster();
    const mails = queue("mails");
    const soon = await mill.enqueue(mails, "soon", { delaySeconds: 0.3 });
    const late = await mill.enqueue(mails, "late", { delaySeconds: 3_600 });
    const at = await mill.enqueue(mails, "at", { runAt: "2199-01-31T09:00:00+01:00" });
    const past = await mill.enqueue(mails, "past", { runAt: new Date(0) });
    const [sql] = await readColumn<string>(
      database,
      "SELECT tidemill.enqueue('mails', '\"sql\"', delay_seconds => 3600)",
    );
    const state = async (id: string): Promise<string> => (await mill.tasks.get(id)).state;
    expect(await Promise.all([soon, late, at, past].map(({ id }) => state(id)))).toEqual([
      "scheduled",
      "scheduled",
      "scheduled",
      "pending",
    ]);
    expect(await state(sql ?? "")).toBe("scheduled");
    expect((await mill.tasks.get(at.id)).runAt).toEqual(new Date("2199-01-31T08:00:00Z"));
    const seen: unknown[] = [];
    await start(mails.handle((task) => void seen.push(task.payload)));
    await Promise.all([soon.result(), past.result()]);
    expect(new Set(seen)).toEqual(new Set(["past", "soon"]));
    const early = await readColumn(
      database,
      "SELECT id FROM tidemill.task_history WHERE claimed_at < run_at",
    );
    expect(early).toEqual([]);
    expect(await state(late.id)).toBe("scheduled");
  });

  it("runs in the order of priorities when a worker comes", async () => {
    const { mill, start } = await newCluster();
    const priorities = [5, 0, 9, 3, 8, 1, 7, 2, 6, 4];
    const tasks = priorities.map((priority) => ({ payload: priority, priority }));
    const handles = await mill.enqueueMany(ORDERS, tasks);
    const seen: number[] = [];
    await start(
      ORDERS.handle(({ payload }) => void seen.push(payload)),
      { concurrency: 1 },
    );
    await Promise.all(handles.map((handle) => handle.result()));
    expect(seen).toEqual([9, 8, 7, 6, 5, 4, 3, 2, 1, 0]);
  });

  it("comes of each tick of a schedule once", async () => {
    const { mill, start } = await newCluster();
    const seen: string[] = [];
    await start(ORDERS.handle(({ id }) => void seen.push(id)));
    await mill.schedules.put("often", { cron: "* * * * * *", queue: ORDERS, payload: 1 });
    await eventually(() => expect(seen).not.toEqual([]));
    await mill.schedules.pause("often");
    const firings = await mill.schedules.firings("often");
    expect(new Set(firings.map(({ tick }) => tick.getTime())).size).toBe(firings.length);
    const fired = firings.map(({ taskId }) => taskId).toReversed();
    await eventually(() => expect(seen).toEqual(fired));
  });
}

function outcomeTests(newCluster: () => Promise<Cluster>): void {
  type Act = (attempt: number, generation: number) => Outcome | undefined;
  const acts: Readonly<Record<string, Act>> = {
    "returns nothing": () => undefined,
    "throws twice": (attempt) => {
      if (attempt < 3) throw new Error(`broken ${attempt}`);
      return completed("third");
    },
    "asks to wait": (attempt) => (attempt === 1 ? nack(0, "not yet") : completed()),
    "abandons it once": (_attempt, generation) => (generation === 1 ? abandon() : completed()),
    "fails for good": () => failed("no such address", { retry: false }),
    "fails too often": (attempt) => failed(`failure ${attempt}`),
  };

  it("says how it ended ends so, tried again as often as it may be", async () => {
    const { mill, start } = await newCluster();
    const mails = queue<string>("mails", {
      maxAttempts: 3,
      backoff: { kind: "fixed", baseSeconds: 0 },
    });
    await start(
      mails.handle(({ payload, attempt }, { token }) => acts[payload]?.(attempt, token.generation)),
    );
    const tasks = Object.keys(acts).map((payload) => ({ payload }));
    const handles = await mill.enqueueMany(mails, tasks);
    await Promise.allSettled(handles.map((handle) => handle.result()));
    const views = await Promise.all(handles.map(({ id }) => mill.tasks.get(id)));
    expect(views.map(({ payload, state, attempt }) => [payload, state, attempt])).toEqual([
      ["returns nothing", "completed", 1],
      ["throws twice", "completed", 3],
      ["asks to wait", "completed", 2],
      ["abandons it once", "completed", 1],
      ["fails for good", "failed", 1],
      ["fails too often", "dead", 3],
    ]);
    const failures = await Promise.all(handles.map(({ id }) => mill.tasks.failures(id)));
    expect(failures.map((those) => those.map(({ reason }) => reason))).toEqual([
      [],
      ["broken 1", "broken 2"],
      ["not yet"],
      [],
      ["no such address"],
      ["failure 1", "failure 2", "failure 3"],
    ]);
  });

  it("let it die runs again when it is redriven", async () => {
    const { mill, start } = await newCluster();
    let isBroken = true;
    await start(ORDERS.handle(() => (isBroken ? failed("broken") : completed("mended"))));
    const handle = await mill.enqueue(ORDERS, 1, { maxAttempts: 1 });
    await expect(handle.result()).rejects.toMatchObject({ state: "dead" });
    expect(await mill.deadLetters.list()).toMatchObject([{ id: handle.id, reason: "broken" }]);
    isBroken = false;
    expect(await mill.deadLetters.redrive()).toBe(1);
    expect(await handle.result()).toBe("mended");
    expect(await mill.deadLetters.list()).toEqual([]);
  });

  it("runs is told within a second of a cancel, and the task ends as cancelled", async () => {
    const { mill, start } = await newCluster();
    const running = gate();
    const reasons: unknown[] = [];
    let abortedAtMs = 0;
    await start(
      ORDERS.handle(async (_task, { signal }) => {
        running.open();
        reasons.push(await aborted(signal));
        abortedAtMs = performance.now();
        throw signal.reason;
      }),
    );
    const { id } = await mill.enqueue(ORDERS, 1);
    await running.opened;
    const cancelledAtMs = performance.now();
    expect(await mill.tasks.cancel(id, { reason: "too late" })).toBe("cancelling");
    await eventually(async () =>
      expect(await mill.tasks.get(id)).toMatchObject({ state: "cancelled", reason: "too late" }),
    );
    expect(reasons).toEqual([expect.any(TaskCancelledError)]);
    expect(String(reasons[0])).toContain("too late");
    expect(abortedAtMs - cancelledAtMs).toBeLessThan(1_000);
  });

  it("completes it in a transaction has its effects with the end, or neither", async () => {
    const { database, mill, start } = await newCluster();
    await database.pool.query("CREATE TABLE effects (attempt INT)");
    await start(
      ORDERS.handle(async ({ attempt }, context) => {
        await mill.transaction(async (tx) => {
          await tx.query("INSERT INTO effects VALUES ($1)", [attempt]);
          await context.complete(tx, { by: attempt });
          if (attempt === 1) throw new Error("and then it broke");
        });
      }),
    );
    const handle = await mill.enqueue(ORDERS, 1);
    expect(await handle.result()).toEqual({ by: 2 });
    expect(await readColumn(database, "SELECT attempt FROM effects")).toEqual([2]);
    const failures = await mill.tasks.failures(handle.id);
    expect(failures.map(({ reason }) => reason)).toEqual(["and then it broke"]);
  });
}

function leaseTests(newCluster: () => Promise<Cluster>): void {
  it("is renewed for as long as the handler runs", async () => {
    const { database, mill, start } = await newCluster();
    const over = gate();
    await start(
      ORDERS.handle(() => over.opened),
      { leaseSeconds: 2 },
    );
    const handle = await mill.enqueue(ORDERS, 1);
    const renewed = `SELECT extract(epoch FROM lease_until - claimed_at) > 3
                       FROM tidemill.tasks WHERE state = 'running'`;
    await eventually(async () => expect(await readColumn(database, renewed)).toEqual([true]));
    over.open();
    await handle.result();
    expect(await readHistory(database.pool)).toMatchObject([{ attempt: 1, generation: 1 }]);
  });

  it("that is lost is told to its handler, whose late completion is refused", async () => {
    const { database, mill, start } = await newCluster();
    await database.pool.query("CREATE TABLE effects (generation INT)");
    const [held, refused] = [gate(), gate()];
    const told: unknown[] = [];
    const handler = ORDERS.handle(async (_task, context) => {
      const { generation } = context.token;
      const complete = async (): Promise<void> =>
        await mill.transaction(async (tx) => {
          await tx.query("INSERT INTO effects VALUES ($1)", [generation]);
          await context.complete(tx);
        });
      if (generation === 1) {
        held.open();
        told.push(await aborted(context.signal));
        await complete().catch((error: unknown) => told.push(error));
        refused.open();
      } else {
        await refused.opened;
        await complete();
      }
    });
    await start(handler, { leaseSeconds: 2 });
    const handle = await mill.enqueue(ORDERS, 1);
    await held.opened;
    await takeBack(database, handle.id);
    await start(handler);
    await handle.result();
    expect(told).toEqual([expect.any(LeaseLostError), expect.any(LeaseLostError)]);
    expect(await readColumn(database, "SELECT generation FROM effects")).toEqual([2]);
    expect(await readHistory(database.pool)).toMatchObject([{ id: handle.id, generation: 2 }]);
  });

  it("is given back uncounted by a worker whose drain is over", async () => {
    const { database, mill, start } = await newCluster();
    const held = gate();
    let runs = 0;
    const handler = ORDERS.handle(async (_task, { signal }) => {
      runs += 1;
      held.open();
      if (runs === 1) await aborted(signal);
    });
    const old = await start(handler, { drainTimeout: 200 });
    const { id } = await mill.enqueue(ORDERS, 1);
    await held.opened;
    await old.stop();
    expect(await readLive(database.pool)).toMatchObject([
      { id, state: "pending", attempt: 0, claimId: null, worker: null },
    ]);
    const next = await start(handler);
    await eventuallyDone(database, 1);
    expect(await readHistory(database.pool)).toMatchObject([
      { state: "completed", attempt: 1, generation: 2, worker: next.id },
    ]);
    expect(await mill.tasks.failures(id)).toEqual([]);
  });
}

/** As if the lease had ended while nobody renewed it, and the task was reaped. */
async function takeBack({ pool }: TestDatabase, id: string): Promise<void> {
  await pool.query(
    `UPDATE tidemill.tasks
        SET state = 'pending', claim_id = NULL, leased_by = NULL, claimed_at = NULL,
            lease_until = NULL, claim_order = nextval('tidemill.task_numbers')
      WHERE id = $1`,
    [id],
  );
}

function clusterTests(newCluster: () => Promise<Cluster>): void {
  const KEYS = 20;

  it("run one after another per key through a hand-over and a stop", async () => {
    const { database, mill, start } = await newCluster();
    const running = new Set<string>();
    const overlaps: string[] = [];
    const seen = new Map<string, number[]>();
    const handler = ORDERS.handle(async ({ payload, partitionKey: key = "" }) => {
      if (running.has(key)) overlaps.push(key);
      running.add(key);
      await new Promise((resolve) => setImmediate(resolve));
      seen.set(key, [...(seen.get(key) ?? []), payload]);
      running.delete(key);
    });
    let rounds = 0;
    const feed = async (more: number): Promise<void> => {
      for (const _round of range(more)) {
        const tasks = range(KEYS).map((n) => ({ payload: rounds, partitionKey: `order:${n}` }));
        await mill.enqueueMany(ORDERS, tasks);
        rounds += 1;
      }
    };
    const first = await start(handler);
    await feed(3);
    await eventuallyDone(database, KEYS * rounds);
    const [second] = await Promise.all([start(handler), feed(3)]);
    await ringSettled(mill, 2);
    await feed(3);
    const workers = async (): Promise<Set<string>> =>
      new Set((await readHistory(database.pool)).map(({ worker }) => worker));
    await eventually(async () => {
      expect(await workers()).toEqual(new Set([first.id, second.id]));
    });
    await Promise.all([first.stop(), feed(3)]);
    await eventuallyDone(database, KEYS * rounds);
    expect(overlaps).toEqual([]);
    for (const ran of seen.values()) expect(ran).toEqual(range(rounds));
  });

  it("never exceed the limit of their queue while workers come and go", async () => {
    const { database, mill, start } = await newCluster();
    const limited = queue<number>("orders", { limits: { concurrency: 3 } });
    const handler = limited.handle(() => labour(5));
    const [first] = await Promise.all([start(handler), start(handler)]);
    let isDone = false;
    const running = "SELECT count(*)::int AS n FROM tidemill.tasks WHERE state = 'running'";
    const sampling = sampleMax(database, running, () => isDone);
    const keyed = payloads(40).map((task) => ({
      ...task,
      partitionKey: `key:${task.payload % 10}`,
    }));
    const handles = await mill.enqueueMany(limited, [...payloads(100), ...keyed]);
    await handles[30]?.result();
    await Promise.all([first.stop(), start(handler)]);
    await eventuallyDone(database, handles.length);
    isDone = true;
    expect(await sampling).toBe(3);
    await expectCompletedOnce(
      database.pool,
      handles.map(({ id }) => id),
    );
  });
}
