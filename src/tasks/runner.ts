import { isDeepStrictEqual } from "node:util";
import { type Clock, withinMs } from "../base/clock.ts";
import { messageOf } from "../base/errors.ts";
import type { Logger } from "../base/log.ts";
import type { Service } from "../base/supervisor.ts";
import type { TenantService } from "../cluster/sql/workers.ts";
import type { Database } from "../db/database.ts";
import { Notifier } from "../db/notifier.ts";
import { Acts } from "./acts.ts";
import { ClaimTokens } from "./claim-tokens.ts";
import type { ClaimedTask } from "./claimed-task.ts";
import { Claimer } from "./claimer.ts";
import type { Demand } from "./demand.ts";
import type { QueueDirectory } from "./directory.ts";
import { Executor } from "./executor.ts";
import { Finisher } from "./finisher.ts";
import type { KeyedQueues } from "./key-space.ts";
import { type Limits, storedLimits } from "./limits.ts";
import type { TaskMetrics } from "./metrics.ts";
import type { Outcome } from "./outcome.ts";
import { type QueueSettings, type TaskHandler, tenantWeight } from "./queue.ts";
import { Renewer } from "./renewer.ts";
import { TaskSession } from "./session.ts";
import { settleRefused } from "./settlement.ts";
import { HandlerSlots, type SlotReserve, type Slots } from "./slots.ts";
import { findStanding, lapseLeases } from "./sql/lease.ts";
import { readQueues } from "./sql/queues.ts";
import { LeaseLostError } from "./task.ts";

/** Tasks are run by others, through this process. */
export interface RemoteWork {
  /** How long the ends of tasks that were claimed as one row wait for each other. */
  readonly lingerMs: number;
  /** How many tasks are handed out in one round of the event loop. */
  readonly startsPerRound: number;
  readonly slots: Slots;
  demand(executor: Executor): Demand;
  /** Called once, before the runner runs. */
  attach(runner: TaskRunner): void;
}

export interface TaskRunnerOptions {
  /** Undefined: by handlers in this process. */
  readonly remote?: RemoteWork | undefined;
  readonly workerId: string;
  readonly handlers: readonly TaskHandler[];
  readonly concurrency: number;
  /** Of the slots, for tasks of high priority. */
  readonly reserve?: SlotReserve | undefined;
  readonly leaseSeconds: number;
  readonly pollMs: number;
  readonly drainMs: number;
  readonly agingSeconds: number;
  readonly fairnessTurn: number;
  readonly sequence: string;
  /** Where workers are told that there is work. */
  readonly channel: string;
  readonly isPooled: boolean;
  readonly clock: Clock;
  readonly random: () => number;
  readonly logger: Logger;
  readonly metrics: TaskMetrics;
  readonly isTrusted: () => boolean;
  /** Tasks of these tenants are run for others from now on, as the leader is to know. */
  readonly onService?: (tenants: readonly TenantService[]) => Promise<void>;
}

/** How long aborted handlers may take to notice before their tasks are given back around them. */
const ABORT_GRACE_MS = 1_000;
const ANSWER_MS = 5_000;
const LOST_MARGIN_MS = 3_000;
/** When the queues could not be read. */
const READ_AGAIN_MS = 1_000;
/** How long the ends of a batch wait when one of its rows is locked, before they go without it. */
const END_LOCK_TIMEOUT_MS = 100;

/**
 * The task side of a worker: claims, runs, writes how it ended, keeps the leases.
 *
 * Stop: nothing more is claimed → what has not started is given back → what others hold is not
 * taken over any more, once nobody can come with it → handlers get `drainMs` →
 * their signals abort and their tasks are given back uncounted → everything is answered for.
 * Dying anywhere leaves leases that run out; the leader gives the tasks to others.
 */
export class TaskRunner implements Service {
  readonly name = "tasks";
  readonly finisher: Finisher;
  readonly renewer: Renewer;
  /** What somebody outside holds, of this worker or another. */
  readonly tokens: ClaimTokens;
  readonly #db: Database;
  readonly #options: TaskRunnerOptions;
  readonly #directory: QueueDirectory;
  readonly #claims: TaskSession;
  readonly #ends: TaskSession;
  readonly #executor: Executor;
  readonly #claimer: Claimer;
  readonly #notifier: Notifier;
  #limits: ReadonlyMap<string, Limits> = new Map();
  /** Ends claims, perhaps before everything else. */
  readonly #claiming = new AbortController();
  #claimedUntilMs = 0;
  #givenBack = 0;
  #isOver = false;
  #isStale = false;
  #isReading = false;
  #cancelReading: (() => void) | undefined;
  #readings = 0;
  /** Of the readings of queues: the last that counts. */
  #newest = 0;

  constructor(db: Database, directory: QueueDirectory, options: TaskRunnerOptions) {
    this.#db = db;
    this.#options = options;
    this.#directory = directory;
    const { clock, logger, metrics, handlers, remote } = options;
    // Claims and ends are written by two sessions of the server, and so on two of its cores.
    this.#claims = new TaskSession(db, { isPooled: options.isPooled });
    this.#ends = new TaskSession(db, {
      isPooled: options.isPooled,
      lockTimeoutMs: END_LOCK_TIMEOUT_MS,
    });
    const notifier = new Notifier(db, options.channel, logger);
    this.#notifier = notifier;
    this.finisher = new Finisher(this.#ends, {
      lingerMs: options.remote?.lingerMs,
      clock,
      logger,
      onSettled: (task, settlement, accepted, nowMs) =>
        this.#executor.settled(task, settlement, accepted, nowMs),
      onRefused: (task, error) => settleRefused(task, error, options.random),
      onAnswered: (hasReturned) => {
        this.#executor.answered();
        if (hasReturned) this.#claimer.workArrived();
        else this.#claimer.roomMade();
        // Whoever leads must know when a retry is due.
        if (hasReturned) notifier.ring();
      },
    });
    const acts = new Acts(db, this.finisher.packs, options);
    this.#executor = new Executor(this.finisher, acts, {
      handlers,
      slots: remote?.slots ?? new HandlerSlots(options.concurrency, options.reserve),
      concurrency: options.concurrency,
      agingSeconds: options.agingSeconds,
      fairnessTurn: options.fairnessTurn,
      findStanding: (tokens) => findStanding(db, tokens),
      isLimited: (queue) => (this.#limits.get(queue)?.concurrency ?? null) !== null,
      clock,
      random: options.random,
      startsPerRound: remote?.startsPerRound,
      metrics,
      onRoom: () => this.#claimer.roomMade(),
      onDry: (lane) => this.#claimer.ranDry(lane),
      onHeadEnded: (task) => this.#claimer.headEnded(task.lane),
      onKeyedBack: (task) => this.#claimer.lowerLane(task.lane),
      onKeyedLost: (task) => this.#claimer.closeLane(task.lane),
    });
    this.renewer = new Renewer(db, this.#executor, {
      packs: this.finisher.packs,
      leaseSeconds: options.leaseSeconds,
      isPooled: options.isPooled,
      clock,
      logger,
      metrics,
    });
    this.#claimer = new Claimer(this.#claims, this.#executor, {
      ...options,
      ...(remote === undefined ? {} : { demand: remote.demand(this.#executor) }),
      isByRow: (queue) => this.finisher.packs.use.isByRow(queue),
      onOpened: () => notifier.ring(),
      weightOf: (name, tenant) => {
        const handler = this.#executor.lines.handlerOf(name);
        return handler === undefined ? 1 : tenantWeight(handler.queue.settings, tenant);
      },
    });
    this.tokens = new ClaimTokens(db, this.#executor, {
      ...options,
      packs: this.finisher.packs,
      onAdopted: () => this.renewer.changed(),
    });
    remote?.attach(this);
  }

  /** Handlers that run here now. */
  get active(): number {
    return this.#executor.active;
  }

  /** Tasks that a stop gave back although they had started. */
  get givenBack(): number {
    return this.#givenBack;
  }

  /** Takes no more tasks, and gives back what has not started. The time to drain begins. */
  stopClaiming(): void {
    if (this.#claiming.signal.aborted) return;
    this.#claimedUntilMs = this.#options.clock.now();
    this.#claiming.abort();
  }

  /** Makes the queues known, so that anybody can enqueue to them. */
  async register(): Promise<void> {
    // What others run is defined by others.
    if (this.#options.remote === undefined) {
      for (const { queue, isStored } of this.#executor.lines.handlers) {
        if (isStored !== true) await this.#directory.find(queue);
      }
    }
    await this.#readQueues();
  }

  /** As they are stored: a person, or whoever defined them, may have changed them. */
  async #readQueues(more: readonly string[] = []): Promise<void> {
    const { lines } = this.#executor;
    this.#readings += 1;
    const reading = this.#readings;
    const rows = await readQueues(this.#db, [...lines.known, ...more]);
    if (reading < this.#newest) {
      await this.#readQueues(more); // A later one was answered before, perhaps without these.
      return;
    }
    this.#newest = reading;
    const isRemote = this.#options.remote !== undefined;
    const queues = new Map<number, KeyedQueues>();
    for (const { name, key_space_id: id, settings } of rows) {
      const handler = lines.handlerOf(name);
      if (handler === undefined || !lines.has(name)) continue;
      const { queue } = handler;
      const isStored = isRemote || handler.isStored === true;
      const now = isStored ? { ...queue, settings: settings as QueueSettings } : queue;
      if (isStored && !isDeepStrictEqual(now, queue)) lines.handle({ ...handler, queue: now });
      const others = queues.get(id);
      const { keyConcurrency } = now.settings;
      queues.set(id, {
        id,
        keyConcurrency: Math.min(keyConcurrency, others?.keyConcurrency ?? Infinity),
        isShared: others !== undefined,
        queues: [...(others?.queues ?? []), name],
      });
    }
    this.#claimer.useKeySpaces([...queues.values()]);
    this.#limits = new Map(rows.map((row) => [row.name, storedLimits(row.limits)]));
    this.#claimer.useLimits(this.#limits);
  }

  workArrived(): void {
    this.#claimer.workArrived();
  }

  /** Tasks of more queues are run, or by other handlers, from now on. */
  async handle(handlers: readonly TaskHandler[]): Promise<void> {
    await this.#readQueues(handlers.map(({ queue }) => queue.name)); // No claim may pass them.
    for (const handler of handlers) this.#executor.lines.handle(handler);
    await this.register();
  }

  /** Tasks of these queues are left to others from now on; what has started ends here. */
  async leave(queues: readonly string[]): Promise<void> {
    for (const queue of queues) this.#executor.leave(queue);
    await this.#readQueues();
  }

  /** Whose tasks are run for others from now on. */
  async serve(tenants: readonly TenantService[]): Promise<void> {
    await this.#options.onService?.(tenants);
  }

  /** How a task ended whose handler tells it later. */
  ended(task: ClaimedTask, outcome: Outcome): void {
    this.#executor.ended(task, outcome);
  }

  /** Somebody takes tasks of the tenant now: what is ready starts. */
  slotsCame(queues: Iterable<string>, tenant: string): void {
    for (const queue of queues) this.#executor.slotsCame(queue, tenant);
  }

  /** More are wanted than are ready here. */
  wantsMore(): void {
    this.#claimer.bell.ring();
  }

  /** Of whom something is ready. */
  waiting(): Iterable<{ readonly queue: string; readonly tenant: string }> {
    return this.#executor.lines.waiting();
  }

  /** Nobody takes tasks of the tenant any more: what has not started goes back. */
  slotsWent(queue: string, tenant: string): void {
    this.#executor.slotsWent(queue, tenant);
  }

  /**
   * Whoever ran these is gone. They are forgotten here at once, and their leases are ended, so that
   * the leader takes them as it does from a worker that was lost. When that cannot be written the
   * leases run out by themselves.
   */
  async lapse(tasks: readonly ClaimedTask[]): Promise<void> {
    const running = tasks.filter(({ state }) => state === "started" || state === "claimed");
    if (running.length === 0) return;
    for (const task of running) this.#executor.lose(task, new LeaseLostError(task.token));
    await this.finisher.packs.open(new Set(running.flatMap(({ pack }) => pack ?? [])), this.#db);
    const tokens = running.map((task) => task.token);
    await lapseLeases(this.#db, tokens, this.#options.workerId);
    this.#notifier.ring();
  }

  /** Somebody outside holds it for so long; to be called when it has ended before that. */
  letGo(task: ClaimedTask, ms: number): () => void {
    return this.#executor.letGo(task, ms + LOST_MARGIN_MS);
  }

  /** Resolves when it was looked for tasks once, beginning now. */
  async looked(): Promise<void> {
    if (this.#claiming.signal.aborted) return;
    const looked = this.#claimer.looks.next();
    this.#claimer.bell.ring();
    await looked;
  }

  /** Something changed in the cluster. */
  changed(): void {
    this.renewer.changed();
    this.#claimer.ownersChanged();
    void this.#readAgain();
  }

  /** Once more after the last change, however many come meanwhile. */
  async #readAgain(): Promise<void> {
    this.#isStale = true;
    if (this.#isReading) return;
    this.#isReading = true;
    try {
      while (this.#isStale) {
        this.#isStale = false;
        await this.#readQueues();
      }
    } catch (error) {
      if (this.#isOver) return;
      // Claims prove what they rely on.
      this.#options.logger.warn({ error: messageOf(error) }, "could not read the queues");
      this.#cancelReading ??= this.#options.clock.after(READ_AGAIN_MS, () => {
        this.#cancelReading = undefined;
        void this.#readAgain();
      });
    } finally {
      this.#isReading = false;
    }
  }

  async run(signal: AbortSignal): Promise<void> {
    const stop = (): void => this.stopClaiming();
    signal.addEventListener("abort", stop, { once: true });
    if (signal.aborted) stop();
    try {
      await this.#claimer.run(this.#claiming.signal);
      this.#executor.stopStarting();
      await aborted(signal);
      this.#executor.stopAdopting();
      await this.#drain();
      await this.#claimer.close().catch(() => {}); // The leader frees what is left of a worker.
    } finally {
      this.#isOver = true;
      this.#cancelReading?.();
      this.#executor.close();
      await Promise.all([this.#claims.close(), this.#ends.close()]);
    }
  }

  async #drain(): Promise<void> {
    const { clock, drainMs, logger } = this.#options;
    const idle = this.#executor.idle();
    const leftMs = Math.max(0, this.#claimedUntilMs + drainMs - clock.now());
    await withinMs(idle, leftMs, clock);
    if (this.#executor.active > 0) {
      logger.warn({ tasks: this.#executor.active }, "handlers outlived the drain and are aborted");
      this.#givenBack = this.#executor.abortAll();
      await withinMs(idle, ABORT_GRACE_MS, clock);
    }
    // When the database is gone there is nobody to answer: the leases run out.
    await withinMs(this.finisher.empty(), drainMs + ANSWER_MS, clock);
  }
}

async function aborted(signal: AbortSignal): Promise<void> {
  if (signal.aborted) return;
  await new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));
}
