import { Rounds } from "../base/rounds.ts";
import { Timers } from "../base/timers.ts";
import { Attempts, abortTask } from "./attempts.ts";
import type { ClaimedTask } from "./claimed-task.ts";
import type { Finisher } from "./finisher.ts";
import { KeyLines } from "./key-lines.ts";
import { LeftTasks, type LeftTasksOptions } from "./left-tasks.ts";
import type { Outcome } from "./outcome.ts";
import { QueueLines, type QueueLinesOptions } from "./queue-lines.ts";
import type { TaskActs } from "./running-context.ts";
import { giveBack, isElsewhere, secondTry, settleCancelled } from "./settlement.ts";
import type { Settlement } from "./sql/finish.ts";
import { WorkerStoppingError } from "./task.ts";

export interface ExecutorOptions
  extends QueueLinesOptions,
    Pick<LeftTasksOptions, "findStanding" | "isLimited"> {
  readonly random: () => number;
  /** Of handlers, in one round of the event loop. Defaults to 100. */
  readonly startsPerRound?: number | undefined;
  /** A slot came free, or all tasks of a held key were settled. */
  readonly onRoom: () => void;
  /** A head that was held back has ended: its key may flow again. */
  readonly onHeadEnded: (task: ClaimedTask) => void;
  /** A keyed task is back at its old place, perhaps below the floor of its lane. */
  readonly onKeyedBack: (task: ClaimedTask) => void;
  /** The lease of a keyed task is lost, and the database does not know it yet. */
  readonly onKeyedLost: (task: ClaimedTask) => void;
}

const PROBATION_MS = 1_000;
/** Handlers that end at once come in thousands. */
const STARTS_PER_ROUND = 100;
const NONE: ReadonlySet<string> = new Set();

/**
 * Runs claimed tasks, as many at once as allowed. A slot is taken from the call of the handler to
 * its end; a task is held from its claim until the database has answered for its end.
 */
export class Executor {
  readonly #options: ExecutorOptions;
  readonly #finisher: Finisher;
  readonly #attempts: Attempts;
  readonly #workerId: string;
  readonly #timers: Timers;
  /** What is ready, and where it runs. */
  readonly lines: QueueLines;
  readonly #keys = new KeyLines();
  readonly #left: LeftTasks;
  readonly #held = new Set<ClaimedTask>();
  #settledCount = 0;
  #isStarting = false;
  readonly #rounds: Rounds;
  #isStopping = false;
  #isLeaving = false;
  readonly #probation = new Set<ClaimedTask>();
  readonly #returning = new Set<ClaimedTask>();
  #onIdle: (() => void)[] = [];

  constructor(finisher: Finisher, acts: TaskActs, options: ExecutorOptions) {
    this.#finisher = finisher;
    this.#workerId = acts.workerId;
    this.#timers = new Timers(options.clock);
    this.#left = new LeftTasks({ ...options, timers: this.#timers });
    this.#attempts = new Attempts({
      acts,
      timers: this.#timers,
      random: options.random,
      onEnded: (task, settlement) => this.#end(task, settlement),
      onReturned: (task) => this.#release(task),
    });
    this.#options = options;
    this.#rounds = new Rounds(options.startsPerRound ?? STARTS_PER_ROUND, () => {
      this.#startMore();
      options.onRoom();
    });
    this.lines = new QueueLines(options);
  }

  get active(): number {
    return this.lines.active;
  }
  /** Claimed and free to start; those behind another one of their key do not count. */
  get ready(): number {
    return this.lines.ready;
  }
  get held(): ReadonlySet<ClaimedTask> {
    return this.#held;
  }
  /** Ended, and not answered for. */
  get unanswered(): number {
    return this.#held.size - this.active - this.ready - this.#keys.waiting;
  }
  /** Grows with every task that left. */
  get settledCount(): number {
    return this.#settledCount;
  }
  /**
   * One at a time, so that the task that takes its worker along is known. One that has run for a
   * while is taken for harmless: long tasks of a lost worker must not wait for each other.
   */
  get hasProbation(): boolean {
    for (const task of this.#probation) {
      const isProven =
        task.state === "started" && this.#options.clock.now() - task.startedAtMs >= PROBATION_MS;
      if (!isProven) return true;
    }
    return false;
  }
  get keys(): KeyLines {
    return this.#keys;
  }

  #hold(task: ClaimedTask, change: 1 | -1): void {
    if (change === 1) this.#held.add(task);
    else this.#held.delete(task);
    if (!task.isAdopted) this.lines.hold(task.queue, change);
    if (!task.isOnProbation) return;
    if (change === 1) this.#probation.add(task);
    else this.#probation.delete(task);
  }

  /** Tasks of one key must come in order. Those of a key in `cuts` go back unless they lead it. */
  accept(tasks: readonly ClaimedTask[], cuts: ReadonlySet<string> = NONE): void {
    for (const task of tasks) {
      this.#hold(task, 1);
      const { key } = task;
      if (key === undefined) this.lines.push(task);
      else if (!task.isHeldHead && (cuts.has(key) || this.#keys.isReturning(key))) {
        this.giveBack([task]);
      } else if (this.#keys.enter(key, task)) this.lines.push(task);
    }
    this.#startMore();
  }

  #startMore(): void {
    if (this.#isStarting) return; // A handler that ends at once comes back here.
    this.#isStarting = true;
    try {
      this.#startAll();
    } finally {
      this.#isStarting = false;
    }
  }

  #startAll(): void {
    while (this.lines.canStart && !this.#isStopping) {
      if (!this.#rounds.step()) return;
      const task = this.lines.shift();
      if (task === undefined) break;
      if (task.state !== "claimed") continue; // It was given back or lost while it waited.
      this.#start(task);
    }
  }

  #start(task: ClaimedTask): void {
    this.lines.started(task);
    task.state = "started";
    task.startedAtMs = this.#options.clock.now() - (task.ranMs ?? 0);
    if (task.isOnProbation) this.#timers.after(PROBATION_MS, this.#options.onRoom);
    this.#attempts.run(task);
  }

  /** How a task ended whose handler tells it later. */
  ended(task: ClaimedTask, outcome: Outcome): void {
    this.#attempts.ended(task, outcome);
  }

  /** It runs already, for somebody outside. Whether it may. */
  adopt(task: ClaimedTask): boolean {
    if (this.#isLeaving) return false;
    this.#hold(task, 1);
    this.#start(task);
    return true;
  }

  #release(task: ClaimedTask): void {
    this.lines.returned(task);
    this.#startMore();
    if (this.active === 0) for (const resolve of this.#onIdle.splice(0)) resolve();
    this.#options.onRoom();
  }

  /** Slots for tasks of the tenant came free. */
  slotsCame(queue: string, tenant: string): void {
    this.lines.reopen(queue, tenant);
    this.#startMore();
  }

  /** Nobody takes them any more: what of the tenant has not started goes back. */
  slotsWent(queue: string, tenant: string): void {
    const ready = this.lines.drainOf(queue, tenant);
    for (const { key } of ready) if (key !== undefined) this.giveBack(this.#keys.cut(key));
    this.giveBack(ready);
  }

  /** Others run tasks of the queue: what has not started here goes back. */
  leave(queue: string): void {
    for (const tenant of this.lines.leave(queue)) this.slotsWent(queue, tenant);
  }

  /** Resolves when no handler runs. */
  idle(): Promise<void> {
    if (this.active === 0) return Promise.resolve();
    return new Promise((resolve) => this.#onIdle.push(resolve));
  }

  /** The first to say how a task ended is heard: its handler, its timeout, or a stop. */
  #end(task: ClaimedTask, settlement: Settlement): void {
    task.state = "ended";
    const isUndone = settlement.kind !== "complete";
    this.#finisher.add(task, task.isCancelled && isUndone ? settleCancelled(task) : settlement);
  }

  /** The database has answered for the end of a task. */
  settled(task: ClaimedTask, settlement: Settlement, accepted: boolean, nowMs: number): void {
    const { metrics } = this.#options;
    const second = accepted ? undefined : secondTry(task, settlement, this.#options.random);
    if (second !== undefined) {
      this.#finisher.add(task, second);
      return;
    }
    if (accepted) metrics.ended(task, settlement, nowMs);
    else metrics.leaseLosses.add(1, { queue: task.queue });
    task.handler.settled?.(task, accepted ? settlement.kind : undefined);
    if (!accepted && isElsewhere(settlement)) {
      this.#leaveToOthers(task);
      return;
    }
    this.#forget(task);
    if (this.#returning.delete(task) && task.key !== undefined) {
      this.#keys.endReturning(task.key);
      this.#options.onKeyedBack(task);
    }
    const isParked = settlement.kind === "bury" && settlement.row.park;
    const isOver = settlement.kind !== "put-back" && !isParked;
    // A new hold, or one that leads on: the claimer is to look when it is due.
    const isLeading = task.isHeldHead || !accepted || !isOver;
    if (task.key !== undefined && isLeading) this.#options.onHeadEnded(task);
    if (task.key !== undefined) this.#leaveKey(task, task.key, accepted && isOver);
  }

  #leaveKey(task: ClaimedTask, key: string, isOver: boolean): void {
    if (!isOver) {
      // One that comes back, or that is somebody else's now, runs before those behind it, also when
      // it waited itself: the leases of one line end at different times.
      this.#keys.recordCut(key);
      this.giveBack(this.#keys.cut(key));
    }
    const next = this.#keys.leave(key, task);
    if (next !== undefined) this.lines.push(next);
  }

  /** All of a batch are settled: what waited for them may start. */
  answered(): void {
    this.#startMore();
  }

  /** Answered: nothing of it is held under this claim any more. */
  #forget(task: ClaimedTask): void {
    this.#drop(task);
    task.claim.open -= 1;
    if (task.claim.open === 0) this.#finisher.endClaim(task.claim.id);
  }

  #drop(task: ClaimedTask): void {
    task.state = "settled";
    this.#hold(task, -1);
    this.#settledCount += 1;
    if (task.isOnProbation) this.#options.onRoom();
  }

  /** Tasks that did not start go back as if they had never been claimed. */
  giveBack(tasks: readonly ClaimedTask[]): void {
    for (const task of tasks) {
      if (task.state !== "claimed") continue;
      task.state = "ended";
      this.#finisher.add(task, giveBack(task, 0));
      if (task.key === undefined) continue;
      this.#returning.add(task);
      this.#keys.startReturning(task.key);
    }
  }

  /** Somebody else may have it: the handler is told, and nothing of it is written any more. */
  lose(task: ClaimedTask, error: Error): void {
    if (task.state === "settled" || task.state === "ended") return;
    this.#options.metrics.leaseLosses.add(1, { queue: task.queue });
    abortTask(task, error);
    this.#leaveToOthers(task);
  }

  /**
   * Somebody outside holds it for so long: nothing of it is written here any more. Gives what is to
   * be called when it has ended before that.
   */
  letGo(task: ClaimedTask, ms: number): () => void {
    return task.state === "started" ? this.#leaveToOthers(task, ms) : () => {};
  }

  /**
   * The database has it as claimed here, and only the ledger leads the reaper there: the claim must
   * not end. Until it is over it counts against limits, and nothing behind it in its lane may be
   * claimed. What was adopted counts where it was claimed.
   *
   * @param ms how long nothing is known to happen to it
   */
  #leaveToOthers(task: ClaimedTask, ms = 0): () => void {
    const over = task.isAdopted ? () => {} : this.#countOn(task, ms);
    this.#drop(task);
    if (task.key === undefined) return over;
    this.#options.onKeyedLost(task);
    this.#leaveKey(task, task.key, false);
    return over;
  }

  #countOn({ queue, token }: ClaimedTask, ms: number): () => void {
    this.lines.hold(queue, 1);
    return this.#left.leave({ queue, token }, ms, () => this.lines.hold(queue, -1));
  }

  /** Lanes that are no longer ours: what has not started belongs to the next owner. */
  leaveLanes(lanes: ReadonlySet<number>): void {
    const waiting = [...this.#held].filter((task) => lanes.has(task.lane));
    const keys = new Set(waiting.flatMap((task) => task.key ?? []));
    for (const key of keys) this.giveBack(this.#keys.cut(key));
    this.giveBack(waiting);
  }

  /** Keys that must not flow: what of them has not started goes back. */
  stopKeys(keys: ReadonlySet<string>): void {
    for (const key of keys) {
      this.#keys.recordCut(key);
      this.giveBack(this.#keys.cut(key));
    }
    this.giveBack([...this.#held].filter((task) => task.key !== undefined && keys.has(task.key)));
  }

  cancel(task: ClaimedTask, error: Error): void {
    if (task.state !== "started" && task.state !== "claimed") return;
    task.isCancelled = true;
    abortTask(task, error);
    if (task.state !== "claimed") return;
    task.state = "ended";
    this.#finisher.add(task, settleCancelled(task));
  }

  /** Gives back what has not started. What runs goes on, here or outside, and may be ended here. */
  stopStarting(): void {
    this.#isStopping = true;
    this.giveBack(this.#keys.cutAll());
    this.giveBack(this.lines.drain());
  }

  /** Whoever comes with a task from outside is sent to another worker from now on. */
  stopAdopting(): void {
    this.#isLeaving = true;
  }

  /**
   * Tells every handler to stop and gives its task back uncounted, whatever it says later. How many
   * it gives back.
   */
  abortAll(): number {
    const error = new WorkerStoppingError("the worker stops; the task was given back uncounted");
    const started = [...this.#held].filter(({ state }) => state === "started");
    for (const task of started) {
      abortTask(task, error);
      this.#end(task, giveBack(task, 0, this.#workerId));
    }
    return started.length;
  }

  /** Nothing of it wakes the process any more, not even for a handler that never returns. */
  close(): void {
    this.#timers.close();
  }
}
