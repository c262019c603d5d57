import { hostname } from "node:os";
import { type Clock, systemClock } from "../base/clock.ts";
import { ConflictError, messageOf } from "../base/errors.ts";
import { childLogger, type Logger } from "../base/log.ts";
import { type Service, Supervisor } from "../base/supervisor.ts";
import { uuidv4 } from "../base/uuid.ts";
import { VERSION } from "../base/version.ts";
import { AdvisoryElection, type Election, LeaseElection } from "../cluster/election.ts";
import { Leader, type LeaderDuty } from "../cluster/leader.ts";
import { Registry } from "../cluster/registry.ts";
import { partitionsOf } from "../consumers/consumer.ts";
import { Dispatcher } from "../consumers/dispatcher.ts";
import type { ConsumerMetrics } from "../consumers/metrics.ts";
import { LogReader } from "../consumers/reader.ts";
import { ConsumerRunner } from "../consumers/runner.ts";
import { forgetGapRecords } from "../consumers/sql/batch.ts";
import type { Database } from "../db/database.ts";
import { Listener } from "../db/listener.ts";
import type { Partitioning } from "../db/migrations.ts";
import { createEventPartitions } from "../events/sql/preconditions.ts";
import { Scheduler } from "../schedules/scheduler.ts";
import { moveBuckets } from "../tasks/bucket-moves.ts";
import type { QueueDirectory } from "../tasks/directory.ts";
import { Housekeeper } from "../tasks/housekeeper.ts";
import type { TaskMetrics } from "../tasks/metrics.ts";
import { TaskRunner } from "../tasks/runner.ts";
import { dropHistory, makeHistoryPartitions, sumTally } from "../tasks/sql/housekeeping.ts";
import { removeExpiredIdempotencyKeys } from "../tasks/sql/idempotency.ts";
import { freeLostLimits } from "../tasks/sql/limits.ts";
import type { ResolvedWorkerOptions } from "./options.ts";

/** What a worker needs from the connection that made it. */
export interface WorkerContext {
  /** Opens a pool for this worker alone, so that workers never wait for each other. */
  readonly openDatabase: (poolSize: number, logger: Logger) => Database;
  readonly directUrl: string;
  readonly changesChannel: string;
  readonly notifyChannel: string;
  /** Whether appends through this connection announce themselves. */
  readonly announces: boolean;
  readonly leaderKey: bigint;
  readonly sequence: string;
  readonly partitioning: Partitioning;
  readonly compat: "eventsalsa" | undefined;
  readonly logger: Logger;
  readonly metrics: ConsumerMetrics;
  readonly tasks: TaskWorkerContext;
  readonly onEnd: (worker: Worker) => void;
}

export interface TaskWorkerContext {
  readonly directory: QueueDirectory;
  readonly metrics: TaskMetrics;
  /** Where workers are told that there is work. */
  readonly channel: string;
  readonly sequence: string;
  readonly isPooled: boolean;
}

/** For the leader, the dispatcher and membership: batches must not keep these from working. */
const CONTROL_CONNECTIONS = 2;
/** A worker that listens still looks: a notification may be lost. */
const RECONCILE_MS = 3_000;
const AUDIT_DAYS = 30;
const PARTITION_CHECK_MS = 10_000;
const HOUSEKEEPING_MS = 30_000;
const HISTORY_MS = 3_600_000;
const PARTITION_DAYS_AHEAD = 7;
const TALLY_MS = 10_000;
const LIMITS_MS = 10_000;
/** When nothing is due before, and scheduled tasks are announced. */
const HOUSEKEEPER_MS = 5_000;
const KEYS_PER_RUN = 10_000;
/** What the dispatcher cannot see: a task whose transaction took long, and whose news was lost. */
const TASK_RECONCILE_MS = 30_000;

/**
 * One member of the cluster in this process: new → starting → running → stopping → stopped. An id
 * belongs to one run; to run again, make another worker.
 *
 * Stop order: no new work is accepted → batches finish, each consumer is given back as it does →
 * reader, listener, dispatcher → leadership → heartbeats → registration. The registration goes
 * last, because a row that vanishes declares a worker dead.
 */
export class Worker implements AsyncDisposable {
  readonly id: string = uuidv4();
  readonly #context: WorkerContext;
  readonly #options: ResolvedWorkerOptions;
  readonly #clock: Clock = systemClock;
  readonly #logger: Logger;
  #state: "new" | "started" | "stopped" = "new";
  #parts: Parts | undefined;
  #supervisor: Supervisor | undefined;
  #beginning: Promise<void> | undefined;
  #finished: Promise<void> | undefined;
  #stopping: Promise<void> | undefined;

  constructor(context: WorkerContext, options: ResolvedWorkerOptions) {
    this.#context = context;
    this.#options = options;
    this.#logger = childLogger(options.logger ?? context.logger, { worker: this.id });
  }

  /** Names of the consumers (or partitions) that run here now. */
  get assigned(): string[] {
    return this.#parts?.runner.assigned ?? [];
  }

  get isLeader(): boolean {
    return this.#parts?.leader.term !== undefined;
  }

  /** Settles when the worker has ended; rejects when it could not go on. */
  get finished(): Promise<void> {
    return this.#finished ?? Promise.resolve();
  }

  /**
   * Runs until `signal` aborts or `stop` is called; then it resolves once everything is given back.
   * Rejects when the worker cannot start or cannot go on.
   */
  async start(signal?: AbortSignal): Promise<void> {
    await this.begin();
    const stop = (): void => void this.stop().catch(() => {});
    signal?.addEventListener("abort", stop, { once: true });
    if (signal?.aborted === true) stop();
    try {
      await this.#finished;
    } finally {
      signal?.removeEventListener("abort", stop);
    }
  }

  /** Resolves when the worker is registered and running; `start` also waits for its end. */
  async begin(): Promise<void> {
    if (this.#state !== "new") {
      throw new ConflictError("this worker was started before; make a new one to run again");
    }
    this.#state = "started";
    this.#beginning = this.#begin();
    await this.#beginning;
  }

  async #begin(): Promise<void> {
    const pools = {
      control: this.#context.openDatabase(CONTROL_CONNECTIONS, this.#logger),
      batches: this.#context.openDatabase(this.#options.batchConnections, this.#logger),
    };
    let parts: Parts;
    try {
      parts = this.#build(pools);
      this.#parts = parts;
      await parts.listener?.open();
      await parts.election.open();
      await parts.tasks?.register(); // Before the leader hears of this worker, and gives it buckets.
      await parts.registry.register();
      await parts.runner.register();
    } catch (error) {
      await this.#abandon(pools);
      throw error;
    }
    const supervisor = new Supervisor(servicesOf(parts));
    this.#supervisor = supervisor;
    this.#finished = this.#endAfter(supervisor, pools, parts.registry);
    this.#finished.catch(() => {}); // Reported by start().
  }

  /** Stops gracefully; resolves when the worker is gone, whatever it ended with. */
  async stop(): Promise<void> {
    if (this.#state === "new") this.#state = "stopped";
    this.#stopping ??= this.#stop();
    await this.#stopping;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  /** Events were appended by this process: no need to wait for the dispatcher. */
  eventsAppended(): void {
    this.#parts?.reader.bell.ring();
  }

  /** Tasks were enqueued by this process. */
  tasksEnqueued(): void {
    this.#parts?.tasks?.workArrived();
    this.#parts?.housekeeper?.bell.ring();
  }

  async #stop(): Promise<void> {
    await this.#beginning?.catch(() => {}); // Reported by begin().
    const supervisor = this.#supervisor;
    if (supervisor === undefined) return;
    await this.#parts?.registry.drain().catch((error: unknown) => {
      this.#logger.warn({ error: messageOf(error) }, "could not announce the stop");
    });
    await supervisor.stop().catch(() => {}); // Reported by start().
    await this.#finished?.catch(() => {});
  }

  async #endAfter(supervisor: Supervisor, pools: Pools, registry: Registry): Promise<void> {
    try {
      await supervisor.finished;
    } catch (error) {
      this.#logger.error({ error: messageOf(error) }, "worker cannot go on");
      throw error;
    } finally {
      await this.#end(pools, registry);
    }
  }

  async #end(pools: Pools, registry: Registry): Promise<void> {
    this.#state = "stopped";
    await registry.deregister().catch((error: unknown) => {
      this.#logger.warn({ error: messageOf(error) }, "could not remove the registration");
    });
    await Promise.all([pools.control.close(), pools.batches.close()]);
    this.#context.onEnd(this);
  }

  async #abandon(pools: Pools): Promise<void> {
    this.#state = "stopped";
    await this.#parts?.election.release().catch(() => {});
    await this.#parts?.listener?.close();
    await this.#parts?.registry.deregister().catch(() => {});
    await Promise.all([pools.control.close(), pools.batches.close()]);
    this.#context.onEnd(this);
  }

  #build({ control: db, batches }: Pools): Parts {
    const options = this.#options;
    const { changesChannel, metrics, sequence } = this.#context;
    const shared = { clock: this.#clock, logger: this.#logger, metrics, changesChannel };
    const registry = this.#buildRegistry(db);
    const reader = new LogReader(db, {
      ...shared,
      sequence,
      staleGapThresholdMs: options.staleGapThreshold,
      cacheBytesMax: options.readCacheBytes,
    });
    const runner = new ConsumerRunner(db, reader, options.consumers, {
      ...shared,
      batches,
      workerId: this.id,
      batchSize: options.batchSize,
      batchPauseMs: options.batchPause,
      batchTimeoutMs: options.batchTimeout,
      pollIntervalMs: options.pollInterval,
      maxPollIntervalMs: options.maxPollInterval,
      maxConsecutiveFailures: options.maxConsecutiveFailures,
      onFailure: options.onFailure,
      gapPolicy: options.gapPolicy,
      staleGapThresholdMs: options.staleGapThreshold,
      staleGapHarborLag: options.staleGapHarborLag,
      syncIntervalMs: Math.max(1_000, Math.min(2_000, options.rebalanceInterval)),
      drainTimeoutMs: options.drainTimeout,
      givesBack: this.#context.compat === undefined,
      isTrusted: () => registry.isTrusted,
    });
    const election = this.#buildElection(db);
    const leader = this.#buildLeader(db, election);
    const tasks = this.#buildTasks(db, registry);
    const housekeeper = this.#buildHousekeeper(db, leader, tasks);
    const scheduler = this.#buildScheduler(db, leader, tasks);
    const onEvents = (): void => reader.bell.ring();
    const onChanges = (): void => {
      leader.bell.ring();
      runner.changed();
      tasks?.changed();
      scheduler?.bell.ring();
    };
    const onTasks = (): void => {
      tasks?.workArrived();
      housekeeper?.bell.ring();
    };
    const isListening = options.dispatcherStrategy === "notify";
    const intervalMs = isListening ? RECONCILE_MS : options.dispatcherInterval;
    const dispatcher = new Dispatcher(db, {
      ...shared,
      intervalMs,
      onEvents,
      onChanges,
      onTasks,
    });
    const listener = isListening
      ? this.#buildListener(db, { onEvents, onChanges, onTasks })
      : undefined;
    return {
      registry,
      reader,
      runner,
      election,
      leader,
      dispatcher,
      listener,
      tasks,
      housekeeper,
      scheduler,
    };
  }

  #buildTasks(db: Database, registry: Registry): TaskRunner | undefined {
    const options = this.#options;
    if (options.handlers.length === 0) return undefined;
    const { directory, metrics, sequence, isPooled } = this.#context.tasks;
    const isListening = options.dispatcherStrategy === "notify";
    return new TaskRunner(db, directory, {
      workerId: this.id,
      handlers: options.handlers,
      concurrency: options.concurrency,
      leaseSeconds: options.leaseSeconds,
      pollMs: isListening
        ? Math.max(TASK_RECONCILE_MS, options.taskPollInterval)
        : options.taskPollInterval,
      drainMs: options.drainTimeout,
      agingSeconds: options.agingSeconds,
      fairnessTurn: options.fairnessTurn,
      sequence,
      isPooled,
      clock: this.#clock,
      random: Math.random,
      logger: this.#logger,
      metrics,
      isTrusted: () => registry.isTrusted,
    });
  }

  #buildScheduler(
    db: Database,
    leader: Leader,
    tasks: TaskRunner | undefined,
  ): Scheduler | undefined {
    if (this.#context.compat !== undefined) return undefined;
    const { directory, metrics, channel } = this.#context.tasks;
    return new Scheduler(db, {
      workerId: this.id,
      term: () => leader.term,
      directory,
      channel,
      clock: this.#clock,
      logger: this.#logger,
      metrics,
      onWork: () => tasks?.workArrived(),
    });
  }

  #buildHousekeeper(
    db: Database,
    leader: Leader,
    tasks: TaskRunner | undefined,
  ): Housekeeper | undefined {
    if (this.#context.compat !== undefined) return undefined;
    const { metrics, channel } = this.#context.tasks;
    const isListening = this.#options.dispatcherStrategy === "notify";
    return new Housekeeper(db, {
      turnMs: isListening ? HOUSEKEEPER_MS : this.#options.taskPollInterval,
      leaseMs: this.#options.leaseSeconds * 1000,
      workerId: this.id,
      term: () => leader.term,
      channel,
      clock: this.#clock,
      logger: this.#logger,
      metrics,
      onWork: () => tasks?.workArrived(),
    });
  }

  #buildRegistry(db: Database): Registry {
    const options = this.#options;
    const registration = {
      workerId: this.id,
      host: hostname(),
      pid: process.pid,
      version: VERSION,
      capabilities: options.consumers.flatMap(partitionsOf).map((one) => one.name),
      queues: options.handlers.map(({ queue }) => queue.name),
    };
    return new Registry(db, registration, {
      url: this.#context.directUrl,
      heartbeatIntervalMs: options.heartbeatInterval,
      heartbeatTimeoutMs: options.heartbeatTimeout,
      changesChannel: this.#context.changesChannel,
      clock: this.#clock,
      logger: this.#logger,
      load: () => ({ consumers: this.assigned.length, rssBytes: process.memoryUsage.rss() }),
    });
  }

  #buildElection(db: Database): Election {
    const { leaderStrategy, heartbeatTimeout } = this.#options;
    const { leaderKey, directUrl, compat } = this.#context;
    if (leaderStrategy === "advisory") {
      return new AdvisoryElection(db, this.id, leaderKey, directUrl);
    }
    // Shorter than the heartbeat's, so that a new leader is there when a death must be seen.
    const ttlMs = compat === undefined ? heartbeatTimeout * 0.8 : heartbeatTimeout;
    return new LeaseElection(db, this.id, ttlMs, this.#clock);
  }

  #buildLeader(db: Database, election: Election): Leader {
    const options = this.#options;
    const { changesChannel, compat, metrics } = this.#context;
    return new Leader(db, election, {
      workerId: this.id,
      strategy: options.assignment,
      ignoreCapabilities: compat !== undefined,
      heartbeatTimeoutMs: options.heartbeatTimeout,
      rebalanceIntervalMs: options.rebalanceInterval,
      changesChannel,
      clock: this.#clock,
      logger: this.#logger,
      duties: this.#duties(db),
      onUnassignable: (names) => {
        metrics.unassignable.set(names.length);
        if (names.length > 0)
          this.#logger.warn({ names }, "no live worker can run these consumers");
      },
    });
  }

  #duties(db: Database): LeaderDuty[] {
    const { partitioning, compat } = this.#context;
    const audit: LeaderDuty = {
      name: "gap audit retention",
      everyMs: 3_600_000,
      run: () => forgetGapRecords(db, AUDIT_DAYS * 24 * 3600),
    };
    const duties = compat === undefined ? [audit, ...this.#taskDuties(db)] : [audit];
    if (partitioning.strategy === "none") return duties;
    const partitions: LeaderDuty = {
      name: "event partitions",
      everyMs: PARTITION_CHECK_MS,
      run: async () => {
        await createEventPartitions(db, partitioning.size, partitioning.ahead);
      },
    };
    return [...duties, partitions];
  }

  #taskDuties(db: Database): LeaderDuty[] {
    const { historyDays } = this.#options;
    return [
      {
        name: "buckets",
        everyMs: 0,
        run: (leader) =>
          moveBuckets(db, leader, {
            heartbeatTimeoutMs: this.#options.heartbeatTimeout,
            changesChannel: this.#context.changesChannel,
            logger: this.#logger,
          }),
      },
      {
        name: "limits of lost workers",
        everyMs: LIMITS_MS,
        run: async () => {
          await freeLostLimits(db, this.#options.heartbeatTimeout / 1000);
        },
      },
      { name: "task counts", everyMs: TALLY_MS, run: () => sumTally(db) },
      {
        name: "task history",
        everyMs: HISTORY_MS,
        run: async () => {
          await makeHistoryPartitions(db, PARTITION_DAYS_AHEAD);
          await dropHistory(db, historyDays);
        },
      },
      {
        name: "idempotency keys",
        everyMs: HOUSEKEEPING_MS,
        run: async () => {
          await removeExpiredIdempotencyKeys(db, KEYS_PER_RUN);
        },
      },
    ];
  }

  #buildListener(db: Database, { onEvents, onChanges, onTasks }: Wakes): Listener {
    const { notifyChannel, notifyConnectionString } = this.#options;
    const { directUrl, changesChannel, announces } = this.#context;
    if (!announces && notifyChannel === undefined && this.#options.consumers.length > 0) {
      this.#logger.warn({}, "listening for appends, but no notifyChannel is set for appending");
    }
    return new Listener(db, {
      url: notifyConnectionString ?? directUrl,
      channels: new Map([
        [notifyChannel ?? this.#context.notifyChannel, onEvents],
        [changesChannel, onChanges],
        [this.#context.tasks.channel, onTasks],
      ]),
      clock: this.#clock,
      logger: this.#logger,
    });
  }
}

interface Pools {
  readonly control: Database;
  readonly batches: Database;
}

interface Wakes {
  readonly onEvents: () => void;
  readonly onChanges: () => void;
  readonly onTasks: () => void;
}

/** In the order in which they start; they stop in reverse. */
function servicesOf(parts: Parts): Service[] {
  const { registry, leader, housekeeper, scheduler } = parts;
  const { dispatcher, listener, reader, tasks, runner } = parts;
  const taskServices = tasks === undefined ? [] : [tasks.finisher, tasks.renewer, tasks];
  return [
    registry,
    leader,
    ...(housekeeper === undefined ? [] : [housekeeper]),
    ...(scheduler === undefined ? [] : [scheduler]),
    dispatcher,
    ...(listener === undefined ? [] : [listener]),
    reader,
    ...taskServices,
    runner,
  ];
}

interface Parts {
  readonly registry: Registry;
  readonly reader: LogReader;
  readonly runner: ConsumerRunner;
  readonly election: Election;
  readonly leader: Leader;
  readonly dispatcher: Dispatcher;
  readonly listener: Listener | undefined;
  readonly tasks: TaskRunner | undefined;
  readonly housekeeper: Housekeeper | undefined;
  readonly scheduler: Scheduler | undefined;
}
