import type { Clock } from "../../base/clock.ts";
import { messageOf } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import { Timers } from "../../base/timers.ts";
import type { ClaimedTask } from "../../tasks/claimed-task.ts";
import type { TaskContext } from "../../tasks/context.ts";
import type { QueueDirectory } from "../../tasks/directory.ts";
import type { Executor } from "../../tasks/executor.ts";
import { NO_LIMITS } from "../../tasks/limits.ts";
import { abandon, type Outcome } from "../../tasks/outcome.ts";
import type { TaskHandler, WrittenEnd } from "../../tasks/queue.ts";
import type { RemoteWork, TaskRunner } from "../../tasks/runner.ts";
import type { Task } from "../../tasks/task.ts";
import { Assignment } from "./assignment.ts";
import { Order, OrderBook, type OrderedQueues } from "./order-book.ts";
import { OrderDemand } from "./order-demand.ts";
import { ALL_QUEUES, Presence } from "./presence.ts";

/** Whoever runs tasks somewhere else. */
export interface RemoteWorker {
  readonly tenant: string;
  /** An order is served, with one task at least; it is closed. */
  onTasks(order: Order<Assignment>): void;
  /** The task is no longer the worker's: it was lost or cancelled, or took too long. */
  onLost(assignment: Assignment, why: Error): void;
}

export interface DeskOptions {
  readonly directory: QueueDirectory;
  /** Queues that one tenant may name before anybody defined them. */
  readonly queuesMax: number;
  readonly clock: Clock;
  readonly logger: Logger;
}

/** How often it is looked for tasks that are ready and nobody orders, and for who is away. */
const SWEEP_MS = 1_000;
/** How often queues that are new are looked for, while somebody asks for all of them. */
const NEW_QUEUES_MS = 1_000;

/**
 * Where remote workers get their tasks. The server is a worker of the engine like any other; its
 * slots are what remote workers have ordered. A task that starts here fills the order of its
 * tenant that waited longest, and what starts in one round of the event loop goes out together.
 * Nothing is known here that the database does not know: when the server dies, its leases run out.
 */
export class Desk implements RemoteWork {
  readonly #options: DeskOptions;
  readonly #orders = new OrderBook<Assignment>();
  readonly #timers: Timers;
  readonly #assignments = new Map<Task, Assignment>();
  readonly #workers = new Map<Order<Assignment>, RemoteWorker>();
  readonly #holders = new Map<Assignment, RemoteWorker>();
  /** Orders that got tasks in this round. */
  readonly #filled = new Set<Order<Assignment>>();
  readonly #handled = new Map<string, Promise<void>>();
  /** Orders of whatever queue there is. */
  readonly #ofAll = new Set<Order<Assignment>>();
  readonly #presence = new Presence();
  #isTelling = false;
  #isLooking = false;
  /** Of queues and tenants that nobody ordered when it was last looked. */
  #unwanted: ReadonlySet<string> = new Set();
  #naming: { readonly names: Promise<string[]>; readonly atMs: number } | undefined;
  #handling: Promise<unknown> = Promise.resolve();
  #demand: OrderDemand | undefined;
  #runner: TaskRunner | undefined;

  constructor(options: DeskOptions) {
    this.#options = options;
    this.#timers = new Timers(options.clock);
  }

  get slots(): OrderBook<Assignment> {
    return this.#orders;
  }

  demand(executor: Executor): OrderDemand {
    this.#demand ??= new OrderDemand(executor, this.#orders, this.#options.clock);
    return this.#demand;
  }

  /** The engine that claims for it. */
  attach(runner: TaskRunner): void {
    this.#runner = runner;
    this.#timers.after(SWEEP_MS, () => this.#sweep());
  }

  /** Resolves when tasks of the queues, as they are now, can be claimed here. */
  async handle(queues: OrderedQueues, tenant: string): Promise<void> {
    for (const name of queues === "all" ? await this.#names() : queues) {
      let handling = this.#handled.get(name);
      if (handling === undefined) {
        handling = this.#handle(name, tenant);
        this.#handled.set(name, handling);
        handling.catch(() => this.#handled.delete(name));
      }
      await handling;
    }
  }

  /** As they were a moment ago: many may ask. */
  #names(): Promise<string[]> {
    const { clock, directory } = this.#options;
    const nowMs = clock.now();
    if (this.#naming === undefined || nowMs - this.#naming.atMs >= NEW_QUEUES_MS / 2) {
      const names = directory.names();
      names.catch(() => {
        this.#naming = undefined;
      });
      this.#naming = { names, atMs: nowMs };
    }
    return this.#naming.names;
  }

  async #handle(name: string, tenant: string): Promise<void> {
    const { directory, queuesMax } = this.#options;
    const { settings } = await directory.findOrIntroduce(name, { tenant, queuesMax });
    const nothing = { schema: undefined, resultSchema: undefined };
    const handler: TaskHandler = {
      queue: { name, keySpace: name, settings, limits: NO_LIMITS, ...nothing },
      concurrency: undefined,
      run: (task, context) => this.#start(task as ClaimedTask, context),
      settled: (task, written) => this.#settled(task, written),
    };
    // One after another: each asks for all that are handled.
    const handling = this.#handling.then(() => this.#runner?.handle(handler));
    this.#handling = handling.catch(() => {});
    await handling;
    this.#presence.handlesMore();
  }

  #namesOf(queues: OrderedQueues): Iterable<string> {
    return queues === "all" ? this.#handled.keys() : queues;
  }

  /** Asks for up to `count` tasks of queues that are handled here. Served once, or withdrawn. */
  order(worker: RemoteWorker, queues: OrderedQueues, count: number): Order<Assignment> {
    const order = new Order<Assignment>(worker.tenant, queues, count);
    this.#workers.set(order, worker);
    this.#orders.open(order);
    const named = queues === "all" ? [ALL_QUEUES] : queues;
    const isNews = this.#presence.ordered(worker.tenant, named, this.#options.clock.now());
    if (isNews) void this.#tell();
    if (queues === "all") this.#lookForQueues(order);
    this.#runner?.slotsCame(this.#namesOf(queues), worker.tenant);
    if (this.#demand?.lacks(worker.tenant) === true) this.#runner?.wantsMore();
    return order;
  }

  /** Nobody waits for it any more. Tasks that it was about to be served with go back uncounted. */
  withdraw(order: Order<Assignment>): void {
    this.#close(order);
    this.#filled.delete(order);
    for (const assignment of order.tasks.splice(0)) assignment.end(abandon(), () => {});
  }

  #close(order: Order<Assignment>): void {
    this.#orders.close(order);
    this.#workers.delete(order);
    this.#ofAll.delete(order);
  }

  /** A queue may be made while an order of all queues waits. */
  #lookForQueues(order: Order<Assignment>): void {
    this.#ofAll.add(order);
    if (this.#isLooking) return;
    this.#isLooking = true;
    this.#timers.after(NEW_QUEUES_MS, () => {
      this.#isLooking = false;
      const [waiting] = this.#ofAll;
      if (waiting === undefined) return;
      this.#lookForQueues(waiting);
      this.handle("all", waiting.tenant).catch((error: unknown) => {
        this.#options.logger.warn({ error: messageOf(error) }, "could not look for new queues");
      });
    });
  }

  /** What is ready, and nobody has ordered twice in a row, goes back to other servers. */
  #sweep(): void {
    const unwanted = new Map<string, { readonly queue: string; readonly tenant: string }>();
    for (const one of this.#runner?.waiting() ?? []) {
      if (this.#orders.credit(one.queue, one.tenant) > 0) continue;
      unwanted.set(JSON.stringify([one.queue, one.tenant]), one);
    }
    for (const [key, { queue, tenant }] of unwanted) {
      if (!this.#unwanted.has(key)) continue;
      unwanted.delete(key);
      this.#runner?.slotsWent(queue, tenant);
    }
    this.#unwanted = new Set(unwanted.keys());
    this.#review();
    this.#timers.after(SWEEP_MS, () => this.#sweep());
  }

  /** Who is here, and who is not any more. What could not be told is told again. */
  #review(): void {
    const running = new Set<string>();
    for (const { queue, tenant } of this.#assignments.keys()) {
      running.add(JSON.stringify([queue, tenant]));
      running.add(JSON.stringify([ALL_QUEUES, tenant]));
    }
    this.#presence.review({
      nowMs: this.#options.clock.now(),
      isOrdered: (queue, tenant) => this.#orders.credit(queue, tenant) > 0,
      isRunning: (queue, tenant) => running.has(JSON.stringify([queue, tenant])),
    });
    void this.#tell();
  }

  /** Tells the leader whose tasks are wanted here: keys are given to those who can run them. */
  async #tell(): Promise<void> {
    if (this.#isTelling) return;
    this.#isTelling = true;
    try {
      for (;;) {
        const news = this.#presence.news(this.#handled.keys());
        if (news.length === 0) break;
        await this.#runner?.serve(news);
        this.#presence.told(news);
      }
    } catch (error) {
      const facts = { error: messageOf(error) };
      this.#options.logger.warn(facts, "could not say whose tasks are wanted here");
    } finally {
      this.#isTelling = false;
    }
  }

  /** Whoever held these has been gone for so long. */
  loseAfter(ms: number, assignments: readonly Assignment[]): void {
    this.#timers.after(ms, () => void this.lose(assignments));
  }

  /** Whoever held these is gone: each counts as lost with its worker. */
  async lose(assignments: readonly Assignment[]): Promise<void> {
    const held = assignments.filter((one) => one.isRunning);
    for (const one of held) this.#forget(one);
    try {
      await this.#runner?.lapse(held.map(({ task }) => task));
    } catch (error) {
      const facts = { error: messageOf(error), tasks: held.length };
      this.#options.logger.warn(facts, "could not end the leases of a lost worker: they run out");
    } finally {
      for (const one of held) one.drop();
    }
  }

  close(): void {
    this.#timers.close();
  }

  #start(task: ClaimedTask, context: TaskContext): Promise<Outcome> | Outcome {
    const assignment = new Assignment(task, context);
    const order = this.#orders.fill(task.queue, task.tenant, assignment);
    const worker = order === undefined ? undefined : this.#workers.get(order);
    if (order === undefined || worker === undefined) return abandon(); // It was just withdrawn.
    this.#demand?.served(task.tenant);
    this.#assignments.set(task, assignment);
    this.#holders.set(assignment, worker);
    const { signal } = context;
    signal.addEventListener("abort", () => this.#aborted(assignment, signal.reason as Error), {
      once: true,
    });
    if (this.#filled.size === 0) setImmediate(() => this.#serve());
    this.#filled.add(order);
    return assignment.returned;
  }

  /** What started in this round goes out. */
  #serve(): void {
    const filled = [...this.#filled];
    this.#filled.clear();
    for (const order of filled) {
      const worker = this.#workers.get(order);
      this.#close(order);
      if (worker !== undefined && order.tasks.length > 0) worker.onTasks(order);
    }
  }

  /** Its lease is lost, it was cancelled, or its time is up: the worker holds it no more. */
  #aborted(assignment: Assignment, why: Error): void {
    const worker = this.#holders.get(assignment);
    this.#forget(assignment);
    worker?.onLost(assignment, why);
    assignment.drop();
  }

  #settled(task: Task, written: WrittenEnd | undefined): void {
    const assignment = this.#assignments.get(task);
    if (assignment === undefined) return;
    this.#forget(assignment);
    assignment.answered(written);
  }

  #forget(assignment: Assignment): void {
    this.#assignments.delete(assignment.task);
    this.#holders.delete(assignment);
  }
}
