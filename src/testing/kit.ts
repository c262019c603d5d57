import { pause, systemClock } from "../base/clock.ts";
import { ConfigError, TimeoutError } from "../base/errors.ts";
import { silentLogger } from "../base/log.ts";
import { Database } from "../db/database.ts";
import { resolveNames } from "../db/names.ts";
import type { TaskContext } from "../tasks/context.ts";
import type { TaskHandler } from "../tasks/queue.ts";
import { openPackOf } from "../tasks/sql/open-packs.ts";
import { putOnProbation } from "../tasks/sql/reap.ts";
import type { Task } from "../tasks/task.ts";
import type { ConnectOptions } from "../worker/connect.ts";
import { Tidemill } from "../worker/tidemill.ts";
import { findUnfinished, passTime } from "./sql/time.ts";

export interface TestKitOptions extends ConnectOptions {
  /** The handlers under test. */
  readonly handlers: readonly TaskHandler[];
}

/** One call of a handler. */
export interface Delivery {
  readonly taskId: string;
  readonly queue: string;
  readonly attempt: number;
  /** "threw" when the handler did. */
  readonly ended: "returned" | "threw";
}

export interface RunOptions {
  /** Defaults to 10,000. */
  readonly timeoutMs?: number;
}

type Fault = "lease-loss" | "crash-before-commit" | "duplicate";

const LOOK_MS = 10;

/**
 * Runs handlers of yours against the real engine and a real database, with the accidents that
 * happen once a year: a lease that is lost while the handler runs, a process that dies between the
 * work and its commit, a task that is delivered twice. A handler that survives these is safe to
 * deploy.
 *
 * Time passes when told to: `advance(3600)` makes everything that would be due in an hour due now.
 */
export class TestKit implements AsyncDisposable {
  readonly mill: Tidemill;
  /** Every call of a handler, in the order in which they ended. */
  readonly deliveries: Delivery[] = [];
  readonly #db: Database;
  readonly #handlers: readonly TaskHandler[];
  readonly #faults = new Map<string, Fault[]>();

  private constructor(mill: Tidemill, db: Database, handlers: readonly TaskHandler[]) {
    this.mill = mill;
    this.#db = db;
    this.#handlers = handlers;
  }

  /** Connects to a migrated database that the tests may change as they like. */
  static async open(url: string, options: TestKitOptions): Promise<TestKit> {
    const { handlers, ...connect } = options;
    if (!Array.isArray(handlers) || handlers.length === 0) {
      throw new ConfigError("a test kit needs handlers: [queue.handle(...)]");
    }
    const mill = await Tidemill.connect(url, connect);
    const { schema, tables, columnFamily } = connect;
    const names = resolveNames({
      ...(schema === undefined ? {} : { schema }),
      ...(tables === undefined ? {} : { tables }),
      ...(columnFamily === undefined ? {} : { columnFamily }),
    });
    const db = new Database({
      url,
      names,
      logger: silentLogger,
      poolSize: 2,
      applicationName: "tidemill testing",
      preparedStatements: false,
      queryTimeoutMs: 30_000,
      connectTimeoutMs: 10_000,
    });
    return new TestKit(mill, db, handlers);
  }

  /** Lets so many seconds pass: for delays, retries, leases, idempotency keys and schedules. */
  async advance(seconds: number): Promise<void> {
    await this.#db.transaction((tx) => passTime(tx, seconds));
  }

  /** Runs a worker until no task of the handlers' queues can run; later ones wait for `advance`. */
  async runUntilIdle({ timeoutMs = 10_000 }: RunOptions = {}): Promise<void> {
    const queues = this.#handlers.map(({ queue }) => queue.name);
    const deadlineMs = systemClock.now() + timeoutMs;
    await using worker = await this.mill.startWorker({
      handlers: this.#handlers.map((handler) => this.#withFaults(handler)),
      dispatcherInterval: LOOK_MS,
      taskPollInterval: LOOK_MS,
      leaseSeconds: 3,
    });
    for (;;) {
      const open = await findUnfinished(this.#db, queues);
      if (open.length === 0) break;
      if (systemClock.now() >= deadlineMs) {
        const [first = ""] = open;
        const why = await this.mill.tasks.why(first).catch(() => "it has just ended");
        throw new TimeoutError(`${open.length} tasks did not end in time; task ${first}: ${why}`);
      }
      await pause(LOOK_MS, systemClock, new AbortController().signal);
    }
    await worker.stop();
  }

  /** The next task of the queue loses its lease while its handler runs. */
  loseLease(queue: string): void {
    this.#plan(queue, "lease-loss");
  }

  /** The next task of the queue is worked on to the end, and nobody hears of it: it comes again. */
  crashBeforeCommit(queue: string): void {
    this.#plan(queue, "crash-before-commit");
  }

  /** The handler is called twice for the next task of the queue. */
  deliverTwice(queue: string): void {
    this.#plan(queue, "duplicate");
  }

  async close(): Promise<void> {
    await this.mill.close();
    await this.#db.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  #plan(queue: string, fault: Fault): void {
    if (!this.#handlers.some((handler) => handler.queue.name === queue)) {
      throw new ConfigError(`no handler for queue "${queue}" was given to the test kit`);
    }
    this.#faults.set(queue, [...(this.#faults.get(queue) ?? []), fault]);
  }

  #withFaults(handler: TaskHandler): TaskHandler {
    const run = async (task: Task, context: TaskContext): Promise<unknown> => {
      const fault = this.#faults.get(task.queue)?.shift();
      if (fault === "lease-loss") await this.#takeAway(task);
      if (fault === "duplicate") await this.#deliver(handler, task, context);
      const outcome = await this.#deliver(handler, task, context);
      if (fault === "crash-before-commit") await this.#takeAway(task);
      return outcome;
    };
    return { queue: handler.queue, concurrency: handler.concurrency, run };
  }

  async #deliver(handler: TaskHandler, task: Task, context: TaskContext): Promise<unknown> {
    const { id: taskId, queue, attempt } = task;
    try {
      const outcome = await handler.run(task, context);
      this.deliveries.push({ taskId, queue, attempt, ended: "returned" });
      return outcome;
    } catch (error) {
      this.deliveries.push({ taskId, queue, attempt, ended: "threw" });
      throw error;
    }
  }

  /** What the leader does when a worker stops renewing. */
  async #takeAway(task: Task): Promise<void> {
    await this.#db.transaction(async (tx) => {
      await openPackOf(tx, task.id);
      await putOnProbation(tx, [task.id]);
    });
  }
}
