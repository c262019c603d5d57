import type { Clock } from "../base/clock.ts";
import { ConfigError } from "../base/errors.ts";
import type { ClaimedTask } from "./claimed-task.ts";
import type { Below } from "./lanes.ts";
import type { TaskMetrics } from "./metrics.ts";
import type { TaskHandler } from "./queue.ts";
import { ReadyLine, type ReadyLineOptions } from "./ready-line.ts";
import { HandlerSlots, type QueueSlots, type Slots } from "./slots.ts";

export interface QueueLinesOptions extends Omit<ReadyLineOptions, "isOpen" | "turns"> {
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
  /** Of those that run, and that are ready, those below the priority of the reserve. */
  activeBelow: number;
  readyBelow: number;
  /** The gauge that shows it. */
  readonly running: { value: number };
  /** Claimed and not answered for. */
  held: number;
  /** Others run its tasks: none are claimed here any more. */
  isLeft: boolean;
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
    return this.handlers.map(({ queue }) => queue.name);
  }
  /** Also of those that are left: what is held of them may count against a limit. */
  get known(): string[] {
    return [...this.#lines.keys()];
  }
  get handlers(): TaskHandler[] {
    return [...this.#lines.values()].flatMap(({ handler, isLeft }) => (isLeft ? [] : [handler]));
  }

  /** Tasks of its queue are run by this handler from now on. */
  handle(handler: TaskHandler): void {
    const { name, settings } = handler.queue;
    const known = this.#lines.get(name);
    if (known !== undefined) {
      known.handler = handler;
      known.isLeft = false;
      return;
    }
    const slots = this.#slots.of(name, handler.concurrencyNow ?? handler.concurrency);
    const { isOpen } = slots;
    const { metrics } = this.#options;
    const turns = metrics.turns.series({ queue: name });
    const ready = { ...this.#options, turns, ...(isOpen === undefined ? {} : { isOpen }) };
    this.#lines.set(name, {
      handler,
      slots,
      ready: new ReadyLine(settings, ready),
      active: 0,
      activeBelow: 0,
      readyBelow: 0,
      running: metrics.running.series({ queue: name }),
      held: 0,
      isLeft: false,
    });
  }

  /** No more of its tasks are taken. Returns the tenants of whom something is ready here. */
  leave(queue: string): string[] {
    const line = this.#lines.get(queue);
    if (line === undefined) return [];
    line.isLeft = true;
    return [...line.ready.tenants()];
  }

  /** Whether tasks of the queue are taken. */
  has(queue: string): boolean {
    return this.#lines.get(queue)?.isLeft === false;
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
    if (line === undefined || line.isLeft) return -Infinity;
    const { slots, ready } = line;
    return slots.free(tenant) - (tenant === undefined ? ready.size : ready.readyOf(tenant));
  }

  /** Of these, how many are for tasks of the priority; by default for the highest. */
  freeSlotsFor(queue: string, priority = Infinity): number {
    const line = this.#lines.get(queue);
    const free = this.freeSlots(queue);
    const belowMax = line?.slots.belowMax;
    if (line === undefined || belowMax === undefined || !this.#isBelow({ priority })) return free;
    return Math.min(free, belowMax - line.activeBelow - line.readyBelow);
  }

  push(task: ClaimedTask): void {
    const line = this.#lines.get(task.queue);
    if (line === undefined) throw new Error(`no handler for queue ${task.queue}`);
    line.ready.push(task);
    this.#count(line, task, 1);
  }

  #count(line: Line | undefined, task: ClaimedTask, change: 1 | -1): void {
    this.#ready += change;
    if (!this.#isBelow(task)) return;
    this.#readyBelow += change;
    if (line !== undefined) line.readyBelow += change;
  }

  #isBelow({ priority }: Pick<ClaimedTask, "priority">): boolean {
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
    const line = this.#next();
    const task = line?.ready.shift(this.#leastOf(line));
    if (task !== undefined) this.#count(line, task, -1);
    return task;
  }

  /**
   * The lowest priority that may start now. Undefined: any. The reserve bounds how many below its
   * priority run, not which slots they take: under a steady stream of high ones they would never
   * have their turn, however long they wait.
   */
  #leastOf({ slots, activeBelow }: Line): number | undefined {
    const { count, reserve } = this.#slots;
    if (reserve === undefined) return undefined;
    const isFull =
      this.#activeBelow >= count - reserve.count || activeBelow >= (slots.belowMax ?? Infinity);
    return isFull ? reserve.priority : undefined;
  }

  /** Of the queue whose next task ranks highest, by priority and by how long it waits here. */
  #next(): Line | undefined {
    let best: Line | undefined;
    let bestRank = -Infinity;
    for (const line of this.#lines.values()) {
      if (line.ready.size === 0 || line.slots.free() <= 0) continue;
      if (this.#lines.size === 1) return line;
      const head = line.ready.peek(this.#leastOf(line));
      if (head === undefined) continue;
      const rank = head.priority - head.renewedAtMs / 1000 / this.#options.agingSeconds;
      if (rank > bestRank) [best, bestRank] = [line, rank];
    }
    return best;
  }

  /** Its handler is about to be called. */
  started(task: ClaimedTask): void {
    this.#active += 1;
    const isBelow = this.#isBelow(task);
    if (isBelow) this.#activeBelow += 1;
    const line = this.#lines.get(task.queue);
    if (line === undefined) return;
    line.active += 1;
    if (isBelow) line.activeBelow += 1;
    line.slots.take();
    line.running.value = line.active;
  }

  /** Its handler has returned. */
  returned(task: ClaimedTask): void {
    this.#active -= 1;
    const isBelow = this.#isBelow(task);
    if (isBelow) this.#activeBelow -= 1;
    const line = this.#lines.get(task.queue);
    if (line === undefined) return;
    line.active -= 1;
    if (isBelow) line.activeBelow -= 1;
    line.slots.release();
    line.running.value = line.active;
  }

  /** Slots for tasks of the tenant came free. */
  reopen(queue: string, tenant: string): void {
    this.#lines.get(queue)?.ready.reopen(tenant);
  }

  /** Takes out what of the tenant has not started. */
  drainOf(queue: string, tenant: string): ClaimedTask[] {
    const line = this.#lines.get(queue);
    const tasks = line?.ready.drainOf(tenant) ?? [];
    for (const task of tasks) this.#count(line, task, -1);
    return tasks;
  }

  /** Takes out everything that has not started. */
  drain(): ClaimedTask[] {
    this.#ready = 0;
    this.#readyBelow = 0;
    for (const line of this.#lines.values()) line.readyBelow = 0;
    return [...this.#lines.values()].flatMap(({ ready }) => ready.drain());
  }
}
