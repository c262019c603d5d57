import { describe, expect, it } from "vitest";
import {
  abandon,
  completed,
  failed,
  nack,
  type Outcome,
  type QueueOptions,
  queue,
  type TaskContext,
  TaskFailedError,
  type TaskHandle,
  TaskTimeoutError,
  type Tidemill,
  TimeoutError,
  type WorkerOptions,
} from "../../../src/index.ts";
import { type TestDatabase, testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { aborted, BRISK, gate, inTransaction, readColumn } from "./scene.ts";

type Act = (
  attempt: number,
  context: TaskContext,
) => Outcome | undefined | void | Promise<Outcome | undefined | void>;

interface Scene {
  readonly database: TestDatabase;
  readonly mill: Tidemill;
  readonly handle: TaskHandle;
  /** Attempts as its handler saw them. */
  readonly attempts: number[];
}

/** One task of the queue "mails", run as told. */
async function run(
  act: Act,
  options: QueueOptions = {},
  worker: Partial<WorkerOptions> = {},
): Promise<Scene> {
  const database = await testDatabase();
  const mill = await database.connect();
  const attempts: number[] = [];
  const mails = queue("mails", { backoff: { kind: "fixed", baseSeconds: 0 }, ...options });
  const handler = mails.handle((task, context) => {
    attempts.push(task.attempt);
    return act(task.attempt, context);
  });
  await mill.startWorker({ ...BRISK, handlers: [handler], ...worker });
  return { database, mill, attempts, handle: await mill.enqueue(mails, { n: 1 }) };
}

const stateOf = async ({ mill, handle }: Scene): Promise<string> =>
  (await mill.tasks.get(handle.id)).state;

describe("a task whose handler", () => {
  it("returns completed(result) gives the result to whoever waits for it", async () => {
    const { mill, handle } = await run(() => completed({ sent: ["ada"] }));
    expect(await handle.result()).toEqual({ sent: ["ada"] });
    expect(await mill.result(handle.id)).toEqual({ sent: ["ada"] });
    expect(await mill.tasks.get(handle.id)).toMatchObject({
      state: "completed",
      result: { sent: ["ada"] },
      attempt: 1,
      reason: undefined,
    });
  });

  it("returns nothing, undefined or completed(null) is completed", async () => {
    const nothing = await run(() => {});
    expect(await nothing.handle.result()).toBeUndefined();
    const none = await run(async () => undefined);
    expect(await none.handle.result()).toBeUndefined();
    const nil = await run(() => completed(null));
    expect(await nil.handle.result()).toBeNull();
  });

  it("returns anything else has failed, is tried again and says what to return", async () => {
    const { mill, handle, attempts } = await run((attempt) =>
      attempt === 1 ? ({ sent: true } as never) : completed(),
    );
    await handle.result();
    expect(attempts).toEqual([1, 2]);
    expect(await mill.tasks.failures(handle.id)).toMatchObject([
      {
        attempt: 1,
        outcome: "failed",
        reason: expect.stringContaining("return completed(result)"),
      },
    ]);
  });

  it("completes with what JSON cannot say has failed", async () => {
    const scene = await run(() => completed(1n), { maxAttempts: 1 });
    await eventually(async () => expect(await stateOf(scene)).toBe("dead"));
    const { reason } = await scene.mill.tasks.get(scene.handle.id);
    expect(reason).toMatch(/BigInt/);
  });

  it("throws is tried again, and every failure is kept with its stack", async () => {
    const { mill, handle, attempts } = await run(async (attempt) => {
      if (attempt === 1) throw new TypeError("first");
      if (attempt === 2) throw "second";
      return completed("third");
    });
    expect(await handle.result()).toBe("third");
    expect(attempts).toEqual([1, 2, 3]);
    const failures = await mill.tasks.failures(handle.id);
    expect(failures).toMatchObject([
      { attempt: 1, outcome: "failed", reason: "first", workerId: expect.any(String) },
      { attempt: 2, outcome: "failed", reason: "second", stack: undefined },
    ]);
    expect(failures[0]?.stack).toContain("outcomes.test.ts");
  });

  it("fails without retry has failed for good", async () => {
    const scene = await run(() => failed("no such address", { retry: false }));
    const error: unknown = await scene.handle.result().catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(TaskFailedError);
    expect(error).toMatchObject({ taskId: scene.handle.id, state: "failed" });
    expect(String(error)).toContain(`task ${scene.handle.id} failed: no such address`);
    expect(await scene.mill.tasks.get(scene.handle.id)).toMatchObject({
      state: "failed",
      reason: "no such address",
      attempt: 1,
    });
    expect(await scene.mill.tasks.failures(scene.handle.id)).toHaveLength(1);
    expect(await scene.mill.deadLetters.list()).toEqual([]);
  });

  it("fails too often is dead, with all its failures", async () => {
    const scene = await run((attempt) => failed(`failure ${attempt}`), { maxAttempts: 3 });
    const error: unknown = await scene.handle.result().catch((reason: unknown) => reason);
    expect(error).toMatchObject({ name: "TaskFailedError", state: "dead" });
    expect(scene.attempts).toEqual([1, 2, 3]);
    expect(await scene.mill.deadLetters.list()).toMatchObject([
      {
        id: scene.handle.id,
        state: "dead",
        cause: "attempts_exhausted",
        reason: "failure 3",
        attempt: 3,
        payload: { n: 1 },
      },
    ]);
    const failures = await scene.mill.tasks.failures(scene.handle.id);
    expect(failures.map(({ reason }) => reason)).toEqual(["failure 1", "failure 2", "failure 3"]);
  });
});

describe("the pause after a failure", () => {
  const pauses = async (scene: Scene, count: number): Promise<number[]> =>
    await eventually(async () => {
      const { rows } = await scene.database.pool.query<{ pause: number }>(
        `SELECT extract(epoch FROM task.run_at - failure.at)::float8 AS pause
           FROM tidemill.task_failures AS failure, tidemill.tasks AS task
          WHERE failure.attempt = $1 AND task.state = 'scheduled' AND task.attempt = $1`,
        [count],
      );
      expect(rows).toHaveLength(1);
      return rows.map(({ pause }) => pause);
    });

  it.each([
    [{ kind: "fixed", baseSeconds: 100 }, [100, 100]],
    [{ kind: "linear", baseSeconds: 100 }, [100, 200]],
    [{ kind: "exponential", baseSeconds: 100, maxSeconds: 150 }, [100, 150]],
  ] as const)("follows the policy %o", async (backoff, expected) => {
    const scene = await run(() => failed("no"), { backoff });
    const [first] = await pauses(scene, 1);
    await scene.mill.tasks.retry(scene.handle.id);
    const [second] = await pauses(scene, 2);
    expect([first, second].map((pause) => Math.round(pause ?? -1))).toEqual(expected);
  });

  it("is the task's own when it has one, and has jitter when asked", async () => {
    const database = await testDatabase();
    const mill = await database.connect();
    const mails = queue("mails");
    const backoff = { kind: "equal-jitter", baseSeconds: 1_000, maxSeconds: 1_000 } as const;
    for (let n = 0; n < 20; n += 1) await mill.enqueue(mails, n, { backoff });
    await mill.startWorker({ ...BRISK, handlers: [mails.handle(() => failed("no"))] });
    const found = await eventually(async () => {
      const seconds = await readColumn<number>(
        database,
        `SELECT extract(epoch FROM task.run_at - failure.at)::float8
           FROM tidemill.task_failures AS failure
           JOIN tidemill.tasks AS task ON task.id = failure.task_id`,
      );
      expect(seconds).toHaveLength(20);
      return seconds;
    });
    expect(Math.min(...found)).toBeGreaterThanOrEqual(499);
    expect(Math.max(...found)).toBeLessThanOrEqual(1_001);
    expect(new Set(found).size).toBeGreaterThan(10);
  });
});

describe("a task that is put back", () => {
  it.each([
    ["an unkeyed one", undefined],
    ["a keyed one", "key"],
  ])("is claimed soon after its pause is over: %s", async (_what, partitionKey) => {
    const database = await testDatabase();
    const mill = await database.connect();
    const mails = queue("mails", { backoff: { kind: "fixed", baseSeconds: 0.2 } });
    const handler = mails.handle((task) => (task.attempt < 4 ? failed("no") : completed()));
    await mill.startWorker({ ...BRISK, handlers: [handler] });
    const first = mill.enqueue(mails, 1, partitionKey === undefined ? {} : { partitionKey });
    await (await first).result();
    const [seconds] = await readColumn<number>(
      database,
      `SELECT extract(epoch FROM ended.claimed_at - first.at)::float8
         FROM tidemill.task_history AS ended
         JOIN tidemill.task_failures AS first ON first.task_id = ended.id AND first.attempt = 1`,
    );
    expect(seconds).toBeLessThan(4);
  });
});

describe("nack", () => {
  it("puts the task back for a while, keeps the reason and counts the attempt", async () => {
    const scene = await run(() => nack(500, "the API asked to wait"), { nackSecondsMax: 60 });
    const view = await eventually(async () => {
      const found = await scene.mill.tasks.get(scene.handle.id);
      expect(found).toMatchObject({ state: "scheduled", attempt: 1 });
      return found;
    });
    const [failure] = await scene.mill.tasks.failures(scene.handle.id);
    expect(failure).toMatchObject({ outcome: "nack", reason: "the API asked to wait" });
    const pause = view.runAt.getTime() - (failure?.at.getTime() ?? 0);
    expect(Math.round(pause / 1_000)).toBe(60);
  });

  it("of 0 comes back at once, and too many are a death", async () => {
    const scene = await run(() => nack(0, "not yet"), { maxAttempts: 4 });
    // Far below the time after which a worker looks though nobody told it of work.
    await eventually(async () => expect(await stateOf(scene)).toBe("dead"), { timeoutMs: 12_000 });
    expect(scene.attempts).toEqual([1, 2, 3, 4]);
    const failures = await scene.mill.tasks.failures(scene.handle.id);
    expect(failures.map(({ outcome }) => outcome)).toEqual(["nack", "nack", "nack", "nack"]);
  });
});

describe("abandon", () => {
  it("gives the task back uncounted, and not at once", async () => {
    let runs = 0;
    const scene = await run(
      () => {
        runs += 1;
        return runs <= 2 ? abandon() : completed();
      },
      { maxAttempts: 1 },
    );
    await scene.handle.result();
    expect(scene.attempts).toEqual([1, 1, 1]);
    expect(await scene.mill.tasks.failures(scene.handle.id)).toEqual([]);
    const [seconds] = await readColumn<number>(
      scene.database,
      "SELECT extract(epoch FROM claimed_at - created_at)::float8 FROM tidemill.task_history",
    );
    expect(seconds).toBeGreaterThanOrEqual(2);
  });
});

describe("a handler that takes too long", () => {
  it("is told by its signal, and has failed", async () => {
    const reasons: unknown[] = [];
    const { mill, handle, attempts } = await run(
      async (attempt, { signal }) => {
        if (attempt === 1) reasons.push(await aborted(signal));
        return completed(attempt);
      },
      { timeoutSeconds: 0.2 },
    );
    expect(await handle.result()).toBe(2);
    expect(attempts).toEqual([1, 2]);
    expect(reasons).toEqual([expect.any(TaskTimeoutError)]);
    expect(await mill.tasks.failures(handle.id)).toMatchObject([
      { attempt: 1, outcome: "timeout", reason: "the handler took longer than 0.2 s" },
    ]);
  });

  it("is dead when that was its last attempt, whatever it says later", async () => {
    const late = gate();
    const scene = await run(() => late.opened.then(() => completed("late")), {
      timeoutSeconds: 0.1,
      maxAttempts: 1,
    });
    await eventually(async () => expect(await stateOf(scene)).toBe("dead"));
    late.open();
    expect(await scene.mill.tasks.get(scene.handle.id)).toMatchObject({
      state: "dead",
      cause: "attempts_exhausted",
    });
  });

  it("is not one that may take a month", async () => {
    const { handle, attempts } = await run(
      async (_attempt, context) => {
        await context.progress(1);
        return completed("done");
      },
      { timeoutSeconds: 30 * 86_400, maxAttempts: 1 },
    );
    expect(await handle.result()).toBe("done");
    expect(attempts).toEqual([1]);
  });
});

describe("a running handler", () => {
  it("knows its lease, and extends it", async () => {
    const go = gate();
    const seen: Date[] = [];
    const scene = await run(async (_attempt, context) => {
      seen.push(context.leaseUntil, await context.extend(1_000), context.leaseUntil);
      await go.opened;
    });
    const view = await eventually(async () => {
      expect(seen).toHaveLength(3);
      return await scene.mill.tasks.get(scene.handle.id);
    });
    const [before, extended, after] = seen;
    expect(after).toEqual(extended);
    expect(view.leaseUntil).toEqual(extended);
    const gained = (extended?.getTime() ?? 0) - (before?.getTime() ?? 0);
    expect(gained).toBeGreaterThanOrEqual(969_000);
    expect(gained).toBeLessThan(1_000_000);
    go.open();
    await scene.handle.result();
  });

  it("never shortens its lease by extending it", async () => {
    const go = gate();
    const seen: Date[] = [];
    const signals: AbortSignal[] = [];
    const scene = await run(async (_attempt, context) => {
      signals.push(context.signal);
      seen.push(context.leaseUntil, await context.extend(0.5));
      await go.opened;
    });
    await eventually(() => expect(seen).toHaveLength(2));
    await eventually(async () => {
      const [isOver] = await readColumn<boolean>(
        scene.database,
        `SELECT clock_timestamp() > claimed_at + INTERVAL '1.5 seconds'
           FROM tidemill.tasks WHERE state = 'running'`,
      );
      expect(isOver).toBe(true);
    });
    expect(signals[0]?.reason).toBeUndefined();
    expect(seen[1]?.getTime()).toBeGreaterThanOrEqual(seen[0]?.getTime() ?? 0);
    go.open();
    await scene.handle.result();
    expect(scene.attempts).toEqual([1]);
  });

  it("shows how far it is, and logs with the task's name", async () => {
    const go = gate();
    const lines: unknown[] = [];
    const log = (fields: object, message: string): void => void lines.push([fields, message]);
    const logger = { debug: () => {}, info: log, warn: () => {}, error: () => {} };
    const scene = await run(
      async (_attempt, context) => {
        context.log.info({ step: 1 }, "half way");
        await context.progress({ done: 0.5 });
        await go.opened;
      },
      {},
      { logger },
    );
    await eventually(async () => {
      const { progress } = await scene.mill.tasks.get(scene.handle.id);
      expect(progress).toEqual({ done: 0.5 });
    });
    const own = lines.filter((line) => JSON.stringify(line).includes("half way"));
    expect(own).toEqual([
      [
        expect.objectContaining({ task: scene.handle.id, queue: "mails", attempt: 1, step: 1 }),
        "half way",
      ],
    ]);
    go.open();
    await scene.handle.result();
  });
});

describe("completing in a transaction of the handler's own", () => {
  it("that is rolled back without an error is a failure that is tried again", async () => {
    const database = await testDatabase();
    await database.pool.query("CREATE TABLE effects (attempt INT)");
    const mill = await database.connect();
    const mails = queue("mails", { backoff: { kind: "fixed", baseSeconds: 0 } });
    const handler = mails.handle(async ({ attempt }, context) => {
      const end = attempt === 1 ? "ROLLBACK" : "COMMIT";
      await inTransaction(database, end, async (client) => {
        await client.query("INSERT INTO effects VALUES ($1)", [attempt]);
        await context.complete(client, { by: attempt });
      });
    });
    await mill.startWorker({ ...BRISK, handlers: [handler] });
    const handle = await mill.enqueue(mails, 1);
    expect(await handle.result()).toEqual({ by: 2 });
    expect(await readColumn(database, "SELECT attempt FROM effects")).toEqual([2]);
    expect(await mill.tasks.failures(handle.id)).toMatchObject([
      { attempt: 1, reason: "the transaction that completed the task was not committed" },
    ]);
  });
});

describe("waiting for a result", () => {
  it("ends when its time is up, while the task goes on", async () => {
    const go = gate();
    const { handle } = await run(() => go.opened.then(() => completed("late")));
    const waiting = handle.result({ timeoutMs: 50 });
    await expect(waiting).rejects.toThrow(TimeoutError);
    await expect(waiting).rejects.toThrow(`task ${handle.id} had not ended in time`);
    go.open();
    expect(await handle.result()).toBe("late");
  });

  it("ends when the task is cancelled", async () => {
    const database = await testDatabase();
    const mill = await database.connect();
    const handle = await mill.enqueue(queue("mails"), 1);
    const waiting = handle.result().catch((error: unknown) => error);
    await mill.tasks.cancel(handle.id, { reason: "no longer wanted" });
    const error = await waiting;
    expect(error).toBeInstanceOf(TaskFailedError);
    expect(error).toMatchObject({ state: "cancelled" });
    expect(String(error)).toContain("was cancelled: no longer wanted");
  });
});

describe("a result schema", () => {
  const isText = (value: unknown) =>
    typeof value === "string" ? { value } : { issues: [{ message: "must be a text" }] };
  const resultSchema = { "~standard": { version: 1, vendor: "test", validate: isText } } as const;

  it("checks what a handler completes itself, before anything is written", async () => {
    const database = await testDatabase();
    const mill = await database.connect();
    const mails = queue("mails", { resultSchema });
    const handler = mails.handle(async (_task, context) => {
      await inTransaction(database, "COMMIT", async (client) => {
        await expect(context.complete(client, 1)).rejects.toThrow(/must be a text/);
        await context.complete(client, "done");
      });
    });
    await mill.startWorker({ ...BRISK, handlers: [handler] });
    const handle = await mill.enqueue(mails, 1);
    expect(await handle.result()).toBe("done");
    const { completions, leaseLosses } = mill.taskMetrics;
    const of = { queue: "mails" };
    await eventually(() => expect(completions.value(of) + leaseLosses.value(of)).toBe(1));
    expect(leaseLosses.value(of)).toBe(0);
    expect(await mill.tasks.failures(handle.id)).toEqual([]);
  });

  it("refuses a result that does not fit, which is a failure", async () => {
    const scene = await run((attempt) => completed(attempt === 1 ? 1 : "two"), { resultSchema });
    expect(await scene.handle.result()).toBe("two");
    expect(await scene.mill.tasks.failures(scene.handle.id)).toMatchObject([
      { attempt: 1, reason: expect.stringContaining("must be a text") },
    ]);
  });
});
