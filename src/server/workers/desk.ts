import type { Clock } from "../../base/clock.ts";
import { messageOf, UnavailableError } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import { Timers } from "../../base/timers.ts";
import type { ClaimTokens } from "../../tasks/claim-tokens.ts";
import type { ClaimedTask } from "../../tasks/claimed-task.ts";
import type { TaskContext } from "../../tasks/context.ts";
import type { QueueDirectory } from "../../tasks/directory.ts";
import type { Executor } from "../../tasks/executor.ts";
import { abandon, type Outcome } from "../../tasks/outcome.ts";
import { LATER, type WrittenEnd } from "../../tasks/queue.ts";
import type { RemoteWork, TaskRunner } from "../../tasks/runner.ts";
import type { Task } from "../../tasks/task.ts";
import { Assignment, type Holder } from "./assignment.ts";
import { AssignmentBook } from "./assignment-book.ts";
import { Custody } from "./custody.ts";
import { Departures } from "./departures.ts";
import { HandledQueues } from "./handled-queues.ts";
import { Order, OrderBook, type OrderedQueues } from "./order-book.ts";
import { OrderDemand } from "./order-demand.ts";
import { ALL_QUEUES, Presence } from "./presence.ts";

/** Whoever runs tasks somewhere else. */
export interface RemoteWorker extends Holder {
  readonly tenant: string;
  /** An order is served, with one task at least; it is closed. */
  onTasks(order: Order<Assignment>): void;
}

export interface DeskOptions {
  readonly directory: QueueDirectory;
  /** Queues that one tenant may name before anybody defined them. */
  readonly queuesMax: number;
  /** Of a claim. */
  readonly leaseSeconds: number;
  readonly clock: Clock;
  readonly logger: Logger;
}

/** How often it is looked for tasks that are ready and nobody orders, and for who is away. */
const SWEEP_MS = 1_000;
/** How often queues that are new are looked for, while somebody asks for all of them. */
const NEW_QUEUES_MS = 1_000;
/**
 * Between the first end and the last of tasks that were claimed as one row. They go out in several
 * messages, perhaps to several workers: with the little time of handlers in a process, most packs
 * would be opened while their ends are on the network.
 */
const LINGER_MS = 100;
/** What starts in one round goes out together: nothing runs here, so that many may. */
const STARTS_PER_ROUND = 1_000;

const namesOf = (queues: OrderedQueues): readonly string[] =>
  queues === "all" ? [ALL_QUEUES] : queues;

/**
 * Where remote workers get their tasks. The server is a worker of the engine like any other; its
 * slots are what remote workers have ordered. A task that starts here fills the order of its
 * tenant that waited longest, and what starts in one round of the event loop goes out together.
 * Nothing is known here that the database does not know: when the server dies, its leases run out.
 */
export class Desk implements RemoteWork {
  readonly lingerMs = LINGER_MS;
  readonly startsPerRound = STARTS_PER_ROUND;
  readonly #options: DeskOptions;
  readonly #orders = new OrderBook<Assignment>();
  readonly #timers: Timers;
  readonly #queues: HandledQueues;
  /** The tasks that remote workers have from here. */
  readonly book = new AssignmentBook();
  readonly custody: Custody;
  readonly departures: Departures;
  readonly #workers = new Map<Order<Assignment>, RemoteWorker>();
  /** Orders that got tasks in this round. */
  readonly #filled = new Set<Order<Assignment>>();
  /** Orders of whatever queue there is. */
  readonly #ofAll = new Set<Order<Assignment>>();
  /** Those that their order had no room for, until the next one comes. */
  readonly #spare = new Set<Assignment>();
  #spareBefore: ReadonlySet<Assignment> = new Set();
  readonly #presence = new Presence();
  #isTelling = false;
  #isLooking = false;
  #sweptAtMs: number;
  #demand: OrderDemand | undefined;
  #runner: TaskRunner | undefined;

  constructor(options: DeskOptions) {
    this.#options = options;
    this.#timers = new Timers(options.clock);
    this.#sweptAtMs = options.clock.now();
    this.#queues = new HandledQueues({
      ...options,
      handler: {
        run: (task, context) => this.#start(task as ClaimedTask, context),
        settled: (task, written) => this.#settled(task, written),
        renewed: (task) => this.#renewed(task),
        aborted: (task, why) => this.#aborted(task, why),
      },
      begin: async (handlers) => {
        await this.#runner?.handle(handlers);
        this.#presence.handlesMore();
        // Orders of all queues do not wait for them, and have been looked for without.
        void this.#tell();
        this.#runner?.wantsMore();
      },
    });
    this.departures = new Departures(this.#timers, () => this.tokens);
    this.custody = new Custody({
      book: this.book,
      timers: this.#timers,
      tokens: () => this.tokens,
      handle: (queues, tenant) => this.handle(queues, tenant),
      letGo: (task, ms) => this.#runner?.letGo(task, ms) ?? (() => {}),
    });
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
    await this.#queues.handle(queues, tenant);
  }

  /** Whether there is nothing to wait for before tasks of the queues can be claimed here. */
  handles(queues: OrderedQueues): boolean {
    return this.#queues.has(queues);
  }

  /** Whether the cluster may have heard that tasks of the queues are wanted here. */
  isKnownFor(queues: OrderedQueues, tenant: string): boolean {
    return this.#presence.knows(tenant, namesOf(queues));
  }

  /**
   * Asks for up to `count` tasks of queues that are handled here. Served once, or withdrawn.
   *
   * @param leaseSeconds for which they are held at least; not longer than any when it is less
   */
  order(
    worker: RemoteWorker,
    queues: OrderedQueues,
    count: number,
    leaseSeconds = 0,
  ): Order<Assignment> {
    const order = new Order<Assignment>(worker.tenant, queues, count, leaseSeconds);
    this.#workers.set(order, worker);
    this.#orders.open(order);
    if (queues === "all") this.#lookForQueues(order);
    this.#orderCame(order);
    return order;
  }

  /** It takes so many more. */
  enlarge(order: Order<Assignment>, by: number): void {
    this.#orders.enlarge(order, by);
    this.#orderCame(order);
  }

  #orderCame({ queues, tenant }: Order<Assignment>): void {
    const nowMs = this.#options.clock.now();
    if (this.#presence.ordered(tenant, namesOf(queues), nowMs)) void this.#tell();
    for (const one of this.#spare) {
      if (one.task.tenant === tenant && this.#fill(one)) this.#spare.delete(one);
    }
    this.#runner?.slotsCame(queues === "all" ? this.#queues.names : queues, tenant);
    if (this.#demand?.lacks(tenant) === true) this.#runner?.wantsMore();
  }

  /** Its order has no room for it: it waits a moment for the next. */
  reassign(assignment: Assignment): void {
    if (!assignment.isRunning) return;
    assignment.holder = undefined;
    if (!this.#fill(assignment)) this.#spare.add(assignment);
  }

  /** What is known of claims by their tokens. */
  get tokens(): ClaimTokens {
    if (this.#runner === undefined) throw new UnavailableError("this server runs no tasks");
    return this.#runner.tokens;
  }

  /** Resolves when it was looked for tasks once, beginning now. */
  async looked(): Promise<void> {
    await this.#runner?.looked();
  }

  /** Nobody waits for it any more. What it was about to be served with is for the next. */
  withdraw(order: Order<Assignment>): void {
    this.#close(order);
    this.#filled.delete(order);
    for (const assignment of order.tasks.splice(0)) this.reassign(assignment);
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

  /**
   * What is ready, and nobody has ordered since the last time, goes back to other servers. That no
   * order stands at this moment says nothing: workers that are busy order when they are done.
   */
  #sweep(): void {
    const nowMs = this.#options.clock.now();
    for (const { queue, tenant } of Array.from(this.#runner?.waiting() ?? [])) {
      if (this.#orders.credit(queue, tenant) > 0) continue;
      if (this.#presence.wasOrdered(tenant, queue, this.#sweptAtMs)) continue;
      this.#runner?.slotsWent(queue, tenant);
    }
    this.#sweptAtMs = nowMs;
    for (const one of this.#spare) {
      if (!this.#spareBefore.has(one)) continue;
      this.#spare.delete(one);
      one.giveBack();
    }
    this.#spareBefore = new Set(this.#spare);
    this.#review(nowMs);
    this.#timers.after(SWEEP_MS, () => this.#sweep());
  }

  /** Who is here, and who is not any more. What could not be told is told again. */
  #review(nowMs: number): void {
    const running = new Set<string>();
    for (const { queue, tenant } of this.book.tasks) {
      running.add(JSON.stringify([queue, tenant]));
      running.add(JSON.stringify([ALL_QUEUES, tenant]));
    }
    this.#presence.review({
      nowMs,
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
        const news = this.#presence.news(this.#queues.names);
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

  /**
   * The worker is gone. What nobody took over from it after so long is lost with it, or goes back
   * uncounted: "back" when its stream did not break.
   */
  leaveAfter(
    ms: number,
    worker: RemoteWorker,
    assignments: readonly Assignment[],
    become: "lost" | "back",
  ): void {
    this.#timers.after(ms, () => {
      const left = assignments.filter((one) => one.holder === worker && one.isRunning);
      if (become === "lost") void this.lose(left);
      else for (const one of left) one.giveBack();
    });
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

  #start(task: ClaimedTask, context: TaskContext): typeof LATER | Outcome {
    const assignment = new Assignment(task, context, this.#onReturn);
    const isOrdered = task.ranMs === undefined;
    if (isOrdered && !this.#fill(assignment)) return abandon(); // Its order was just withdrawn.
    if (isOrdered) this.#demand?.served(task.tenant);
    this.book.add(assignment);
    return LATER;
  }

  readonly #onReturn = (task: ClaimedTask, outcome: Outcome): void =>
    this.#runner?.ended(task, outcome);

  /** Whether there was an order for it. */
  #fill(assignment: Assignment): boolean {
    const { queue, tenant } = assignment.task;
    const order = this.#orders.fill(queue, tenant, assignment);
    const worker = order === undefined ? undefined : this.#workers.get(order);
    if (order === undefined || worker === undefined) return false;
    assignment.holder = worker;
    if (order.tasks.length > 1) return true; // It is about to be served.
    if (this.#filled.size === 0) setImmediate(() => this.#serve());
    this.#filled.add(order);
    return true;
  }

  /** What started in this round goes out. */
  #serve(): void {
    const filled = [...this.#filled];
    this.#filled.clear();
    for (const order of filled) {
      const worker = this.#workers.get(order);
      this.#close(order);
      if (worker === undefined || order.tasks.length === 0) continue;
      if (order.leaseSeconds <= this.#options.leaseSeconds) worker.onTasks(order);
      else void this.#serveForLong(worker, order);
    }
  }

  async #serveForLong(worker: RemoteWorker, order: Order<Assignment>): Promise<void> {
    const tasks = order.tasks.map(({ task }) => task);
    try {
      await this.tokens.lengthen(tasks, order.leaseSeconds);
    } catch (error) {
      // They are held as long as any, and renewed.
      this.#options.logger.warn({ error: messageOf(error) }, "could not lengthen leases");
    }
    worker.onTasks(order);
  }

  /** Its lease is lost, it was cancelled, or its time is up: the worker holds it no more. */
  #aborted(task: Task, why: Error): void {
    const assignment = this.book.of(task);
    if (assignment === undefined) return; // It had not started, or has been answered for.
    const worker = assignment.holder;
    this.#forget(assignment);
    worker?.onLost(assignment, why);
    assignment.drop();
  }

  #settled(task: Task, written: WrittenEnd | undefined): void {
    const assignment = this.book.of(task);
    if (assignment === undefined) return;
    const worker = assignment.holder;
    this.#forget(assignment);
    assignment.answered(written);
    worker?.onGone(assignment); // After the answer: a stream may end with its last task.
  }

  #renewed(task: Task): void {
    const assignment = this.book.of(task);
    assignment?.holder?.onRenewed(assignment);
  }

  #forget(assignment: Assignment): void {
    this.book.forget(assignment);
    this.#spare.delete(assignment);
  }
}
