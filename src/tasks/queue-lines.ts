import type { Clock } from "../base/clock.ts";
import { ConfigError } from "../base/errors.ts";
import type { ClaimedTask } from "./claimed-task.ts";
import type { Below } from "./lanes.ts";
import type { TaskMetrics } from "./metrics.ts";
import type { TaskHandler } from "./queue.ts";
import { ReadyLine, type ReadyLineOptions } from "./ready-line.ts";
import { HandlerSlots, type QueueSlots, type Slots } from "./slots.ts";

export interface QueueLinesOptions extends Omit<ReadyLineOptions, "isOpen"> {
  readonly handlers: readonly TaskHandler[];
  /** Handlers that run at once. */
  readonly concurrency: number;
  /** Defaults to handlers in this process. */
  readonly slots?: Slots;
  readonly clock: Clock;
  readonly metrics: TaskMetrics;
}

/** One queue's tasks in this worker. */
interface Line {
  handler: TaskHandler;
  readonly slots: QueueSlots;
  readonly ready: ReadyLine;
  active: number;
  /** The gauge that shows it. */
  readonly running: { value: number };
  /** Claimed and not answered for. */
  held: number;
}

/** The queues of a worker: what of each may start, how much runs, how much is held. */
export class QueueLines {
  readonly #options: QueueLinesOptions;
  readonly #slots: Slots;
  readonly #lines = new Map<string, Line>();
  #active = 0;
  #ready = 0;
  /** Of these, those whose priority is below that of the reserve. */
  #activeBelow = 0;
  #readyBelow = 0;

  constructor(options: QueueLinesOptions) {
    this.#options = options;
    this.#slots = options.slots ?? new HandlerSlots(options.concurrency);
    for (const handler of options.handlers) {
      if (this.#lines.has(handler.queue.name)) {
        throw new ConfigError(`two handlers for queue "${handler.queue.name}"`);
      }
      this.handle(handler);
    }
  }

  /** Handlers that run now. */
  get active(): number {
    return this.#active;
  }
  /** Tasks that may start when there is a slot for them. */
  get ready(): number {
    return this.#ready;
  }
  /** Names of the queues. */
  get names(): string[] {
    return [...this.#lines.keys()];
  }
  get handlers(): TaskHandler[] {
    return [...this.#lines.values()].map(({ handler }) => handler);
  }

  /** Tasks of its queue are run by this handler from now on. */
  handle(handler: TaskHandler): void {
    const { name, settings } = handler.queue;
    const known = this.#lines.get(name);
    if (known !== undefined) {
      known.handler = handler;
      return;
    }
    const slots = this.#slots.of(name, handler.concurrency);
    const { isOpen } = slots;
    const ready = { ...this.#options, ...(isOpen === undefined ? {} : { isOpen }) };
    this.#lines.set(name, {
      handler,
      slots,
      ready: new ReadyLine(settings, ready),
      active: 0,
      running: this.#options.metrics.running.series({ queue: name }),
      held: 0,
    });
  }

  handlerOf(queue: string): TaskHandler | undefined {
    return this.#lines.get(queue)?.handler;
  }

  /** What of the queue may start when a slot comes free. */
  readyOf(queue: string): ReadyLine | undefined {
    return this.#lines.get(queue)?.ready;
  }

  /** Of whom something is ready, by queue. */
  *waiting(): Generator<{ readonly queue: string; readonly tenant: string }> {
    for (const [queue, { ready }] of this.#lines) {
      if (ready.size > 0) for (const tenant of ready.tenants()) yield { queue, tenant };
    }
  }

  /** Tasks of the queue that are claimed here and not answered for. */
  heldOf(queue: string): number {
    return this.#lines.get(queue)?.held ?? 0;
  }

  hold(queue: string, change: 1 | -1): void {
    const line = this.#lines.get(queue);
    if (line !== undefined) line.held += change;
  }

  /** Slots of the queue, for the tenant or for anybody, that are neither taken nor spoken for. */
  freeSlots(queue: string, tenant?: string): number {
    const line = this.#lines.get(queue);
    if (line === undefined) return 0;
    const { slots, ready } = line;
    return slots.free(tenant) - (tenant === undefined ? ready.size : ready.readyOf(tenant));
  }

  push(task: ClaimedTask): void {
    const line = this.#lines.get(task.queue);
    if (line === undefined) throw new Error(`no handler for queue ${task.queue}`);
    line.ready.push(task);
    this.#count(task, 1);
  }

  #count(task: ClaimedTask, change: 1 | -1): void {
    this.#ready += change;
    if (this.#isBelow(task)) this.#readyBelow += change;
  }

  #isBelow({ priority }: ClaimedTask): boolean {
    return priority < (this.#slots.reserve?.priority ?? -Infinity);
  }

  /** How many more, of a priority below that of the reserve, could start if all others ended. */
  get below(): Below | undefined {
    const { count, reserve } = this.#slots;
    if (reserve === undefined) return undefined;
    const tasks = count - reserve.count - this.#activeBelow - this.#readyBelow;
    return { priority: reserve.priority, tasks };
  }

  /** Whether there may be a task and a slot for it. */
  get canStart(): boolean {
    return this.#ready > 0 && this.#active < this.#slots.count;
  }

  /** The next task to start, unless it was given back or lost while it waited. */
  shift(): ClaimedTask | undefined {
    const least = this.#least;
    const task = this.#next(least)?.ready.shift(least);
    if (task !== undefined) this.#count(task, -1);
    return task;
  }

  /**
   * The lowest priority that may start now. Undefined: any. The reserve bounds how many below its
   * priority run, not which slots they take: under a steady stream of high ones they would never
   * have their turn, however long they wait.
   */
  get #least(): number | undefined {
    const { count, reserve } = this.#slots;
    if (reserve === undefined || this.#activeBelow < count - reserve.count) return undefined;
    return reserve.priority;
  }

  /** Of the queue whose next task ranks highest, by priority and by how long it waits here. */
  #next(least: number | undefined): Line | undefined {
    let best: Line | undefined;
    let bestRank = -Infinity;
    for (const line of this.#lines.values()) {
      if (line.ready.size === 0 || line.slots.free() <= 0) continue;
      if (this.#lines.size === 1) return line;
      const head = line.ready.peek(least);
      if (head === undefined) continue;
      const rank = head.priority - head.renewedAtMs / 1000 / this.#options.agingSeconds;
      if (rank > bestRank) [best, bestRank] = [line, rank];
    }
    return best;
  }

  /** Its handler is about to be called. */
  started(task: ClaimedTask): void {
    this.#active += 1;
    if (this.#isBelow(task)) this.#activeBelow += 1;
    const line = this.#lines.get(task.queue);
    if (line === undefined) return;
    line.active += 1;
    line.slots.take();
    line.running.value = line.active;
  }

  /** Its handler has returned. */
  returned(task: ClaimedTask): void {
    this.#active -= 1;
    if (this.#isBelow(task)) this.#activeBelow -= 1;
    const line = this.#lines.get(task.queue);
    if (line === undefined) return;
    line.active -= 1;
    line.slots.release();
    line.running.value = line.active;
  }

  /** Slots for tasks of the tenant came free. */
  reopen(queue: string, tenant: string): void {
    this.#lines.get(queue)?.ready.reopen(tenant);
  }

  /** Takes out what of the tenant has not started. */
  drainOf(queue: string, tenant: string): ClaimedTask[] {
    const tasks = this.#lines.get(queue)?.ready.drainOf(tenant) ?? [];
    for (const task of tasks) this.#count(task, -1);
    return tasks;
  }

  /** Takes out everything that has not started. */
  drain(): ClaimedTask[] {
    this.#ready = 0;
    this.#readyBelow = 0;
    return [...this.#lines.values()].flatMap(({ ready }) => ready.drain());
  }
}
