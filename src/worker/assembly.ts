import { hostname } from "node:os";
import type { Clock } from "../base/clock.ts";
import type { Logger } from "../base/log.ts";
import { VERSION } from "../base/version.ts";
import { AdvisoryElection, type Election, LeaseElection } from "../cluster/election.ts";
import { Leader } from "../cluster/leader.ts";
import { Registry } from "../cluster/registry.ts";
import { partitionsOf } from "../consumers/consumer.ts";
import { Dispatcher } from "../consumers/dispatcher.ts";
import { LogReader } from "../consumers/reader.ts";
import { rebuildCapability } from "../consumers/rebuild/names.ts";
import { ConsumerRunner } from "../consumers/runner.ts";
import type { Database } from "../db/database.ts";
import { Listener } from "../db/listener.ts";
import type { HttpJobs } from "../delivery/jobs/http-jobs.ts";
import { HttpQueueWatch } from "../delivery/jobs/http-queue-watch.ts";
import { type ResolvedHttpJobs, resolveHttpJobs } from "../delivery/jobs/options.ts";
import { Scheduler } from "../schedules/scheduler.ts";
import { Housekeeper } from "../tasks/housekeeper.ts";
import { TaskRunner } from "../tasks/runner.ts";
import { buildJobs, buildSenders, type DeliveryMember } from "./delivery-parts.ts";
import { leaderDuties } from "./duties.ts";
import { processLoad, type ResolvedWorkerOptions } from "./options.ts";
import type { Parts, Pools } from "./parts.ts";
import type { WorkerContext } from "./worker-context.ts";

/** For the leader, the dispatcher and membership: batches must not keep these from working. */
export const CONTROL_CONNECTIONS = 2;
/** For claims and outcomes of webhooks and notices, in a worker that delivers them. */
export const DELIVERY_CONNECTIONS = 2;
/** A worker that listens still looks: a notification may be lost, or the append sends none. */
const RECONCILE_MS = 1_000;
/** Every enqueue announces itself, so a worker without consumers misses little and rests longer. */
const RECONCILE_TASKS_MS = 5_000;
/** When nothing is due before, and scheduled tasks are announced. */
const HOUSEKEEPER_MS = 5_000;
/** What the dispatcher cannot see: a task whose transaction took long, and whose news was lost. */
const TASK_RECONCILE_MS = 30_000;

/** Who the parts are built for. */
export interface Member {
  readonly id: string;
  readonly clock: Clock;
  /** Between 0 and 1, for jitter. */
  readonly random: () => number;
  readonly logger: Logger;
  /** Names of the consumers that run here now. */
  readonly assigned: () => readonly string[];
}

/** Builds the parts of one worker and connects them: who wakes whom, who is told of what. */
export class Assembly {
  readonly id: string;
  readonly #context: WorkerContext;
  readonly #options: ResolvedWorkerOptions;
  readonly #clock: Clock;
  readonly #random: () => number;
  readonly #logger: Logger;
  readonly #assigned: () => readonly string[];
  readonly #httpJobs: ResolvedHttpJobs | undefined;

  constructor(context: WorkerContext, options: ResolvedWorkerOptions, member: Member) {
    this.#context = context;
    this.#options = options;
    this.id = member.id;
    this.#clock = member.clock;
    this.#random = member.random;
    this.#logger = member.logger;
    this.#assigned = member.assigned;
    this.#httpJobs = resolveHttpJobs(options.httpJobs);
  }

  build({ control: db, batches, rebuilds, deliveries }: Pools): Parts {
    const options = this.#options;
    const { changesChannel, metrics } = this.#context;
    const shared = { clock: this.#clock, logger: this.#logger, metrics, changesChannel };
    const registry = this.#buildRegistry(db, () => tasks?.active);
    const reader = this.#buildReader(db);
    const runner = this.#buildRunner({ control: db, batches, rebuilds }, reader, registry);
    const election = this.#buildElection(db);
    const leader = this.#buildLeader(db, election);
    const { agingSeconds } = options;
    const calling = { ...this.#delivering, agingSeconds };
    const jobs = buildJobs(deliveries, this.#httpJobs, calling);
    const { deliverWebhooks, drainTimeout } = options;
    const senders = buildSenders(deliveries, deliverWebhooks, drainTimeout, this.#delivering);
    const tasks = this.#buildTasks(db, registry, jobs);
    const httpQueues = this.#buildQueueWatch(db, registry, tasks, jobs);
    const housekeeper = this.#buildHousekeeper(db, leader, tasks);
    const scheduler = this.#buildScheduler(db, leader, tasks);
    const onEvents = (): void => reader.announce();
    const onChanges = (): void => {
      leader.bell.ring();
      runner.changed();
      tasks?.changed();
      scheduler?.bell.ring();
      httpQueues?.bell.ring();
      senders.notices?.bell.ring();
    };
    const onTasks = (): void => {
      tasks?.workArrived();
      housekeeper?.bell.ring();
      senders.notices?.bell.ring();
    };
    const isListening = options.dispatcherStrategy === "notify";
    const reconcileMs = options.consumers.length > 0 ? RECONCILE_MS : RECONCILE_TASKS_MS;
    const intervalMs = isListening ? reconcileMs : options.dispatcherInterval;
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
      ...senders,
      jobs,
      httpQueues,
    };
  }

  #buildRunner(
    { control: db, batches, rebuilds }: Pools,
    reader: LogReader,
    registry: Registry,
  ): ConsumerRunner {
    const options = this.#options;
    const { changesChannel, metrics } = this.#context;
    const shared = { clock: this.#clock, logger: this.#logger, metrics, changesChannel };
    return new ConsumerRunner(db, reader, options.consumers, {
      ...shared,
      batches,
      rebuilds,
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
  }

  get #delivering(): DeliveryMember {
    return {
      clock: this.#clock,
      random: this.#random,
      logger: this.#logger,
      metrics: this.#context.deliveryMetrics,
    };
  }

  #buildQueueWatch(
    db: Database,
    registry: Registry,
    tasks: TaskRunner | undefined,
    jobs: HttpJobs | undefined,
  ): HttpQueueWatch | undefined {
    const options = this.#httpJobs;
    if (options === undefined || jobs === undefined || tasks === undefined) return undefined;
    return new HttpQueueWatch(db, {
      names: options.names,
      own: options.definitions.map(({ name }) => name),
      clock: this.#clock,
      logger: this.#logger,
      begin: async (queues) => {
        await tasks.handle(queues.map((queue) => jobs.handlerOf(queue, true)));
        await registry.handle(queues.map(({ name }) => name)); // Then the leader gives us buckets.
      },
      end: (names) => tasks.leave(names).then(() => registry.leave(names)),
    });
  }

  #buildReader(db: Database): LogReader {
    return new LogReader(db, {
      clock: this.#clock,
      logger: this.#logger,
      metrics: this.#context.metrics,
      sequence: this.#context.sequence,
      staleGapThresholdMs: this.#options.staleGapThreshold,
      cacheBytesMax: this.#options.readCacheBytes,
    });
  }

  #buildTasks(
    db: Database,
    registry: Registry,
    jobs: HttpJobs | undefined,
  ): TaskRunner | undefined {
    const options = this.#options;
    const { handlers, remote } = options;
    if (handlers.length === 0 && remote === undefined && jobs === undefined) return undefined;
    const calls = this.#httpJobs;
    const callers = calls?.definitions.flatMap((one) => jobs?.handlerOf(one, false) ?? []) ?? [];
    const { directory, metrics, sequence, isPooled, channel } = this.#context.tasks;
    const isListening = options.dispatcherStrategy === "notify";
    return new TaskRunner(db, directory, {
      workerId: this.id,
      handlers: [...handlers, ...callers],
      concurrency: calls?.concurrency ?? options.concurrency,
      reserve: calls?.reserve,
      leaseSeconds: options.leaseSeconds,
      pollMs: isListening
        ? Math.max(TASK_RECONCILE_MS, options.taskPollInterval)
        : options.taskPollInterval,
      drainMs: options.drainTimeout,
      agingSeconds: options.agingSeconds,
      fairnessTurn: options.fairnessTurn,
      sequence,
      channel,
      isPooled,
      clock: this.#clock,
      random: this.#random,
      logger: this.#logger,
      metrics,
      isTrusted: () => registry.isTrusted,
      remote,
      onService: (tenants) => registry.serve(tenants),
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
      heartbeatTimeoutMs: this.#options.heartbeatTimeout,
      workerId: this.id,
      term: () => leader.term,
      channel,
      clock: this.#clock,
      logger: this.#logger,
      metrics,
      onWork: () => tasks?.workArrived(),
    });
  }

  #buildRegistry(db: Database, running: () => number | undefined): Registry {
    const options = this.#options;
    const rebuildable = canRebuild(options, this.#context) ? options.consumers : [];
    const registration = {
      workerId: this.id,
      host: hostname(),
      pid: process.pid,
      version: VERSION,
      capabilities: [
        ...options.consumers.flatMap(partitionsOf).map((one) => one.name),
        ...rebuildable
          .filter(({ tables }) => tables !== undefined)
          .map(({ name }) => rebuildCapability(name)),
      ],
      queues: [
        ...options.handlers.map(({ queue }) => queue.name),
        ...(this.#httpJobs?.definitions.map(({ name }) => name) ?? []),
      ],
    };
    return new Registry(db, registration, {
      url: this.#context.directUrl,
      heartbeatIntervalMs: options.heartbeatInterval,
      heartbeatTimeoutMs: options.heartbeatTimeout,
      changesChannel: this.#context.changesChannel,
      clock: this.#clock,
      logger: this.#logger,
      load: () => ({
        consumers: this.#assigned().length,
        ...this.#slotLoad(running()),
        ...processLoad(options),
      }),
    });
  }

  /** Of one that runs tasks. How many remote workers would take is theirs to say. */
  #slotLoad(running: number | undefined): object {
    if (running === undefined) return {};
    const slots = this.#httpJobs?.concurrency ?? this.#options.concurrency;
    return this.#options.remote === undefined ? { running, slots } : { running };
  }

  #buildElection(db: Database): Election {
    const { leaderStrategy, heartbeatTimeout } = this.#options;
    const { leaderKey, directUrl, compat } = this.#context;
    if (leaderStrategy === "advisory") {
      return new AdvisoryElection(db, this.id, {
        key: leaderKey,
        url: directUrl,
        staleSeconds: compat === undefined ? heartbeatTimeout / 1000 : undefined,
        logger: this.#logger,
      });
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
      duties: leaderDuties(db, this.#context, this.#options, this.#logger),
      onUnassignable: (names) => {
        metrics.unassignable.set(names.length);
        if (names.length > 0)
          this.#logger.warn({ names }, "no live worker can run these consumers");
      },
    });
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
      random: this.#random,
      logger: this.#logger,
    });
  }
}

/** Members of other systems know no rebuilds, and one that loses events is worth nothing. */
export function canRebuild(options: ResolvedWorkerOptions, { compat }: WorkerContext): boolean {
  const { consumers, gapPolicy } = options;
  const isExact = compat === undefined && gapPolicy === "epoch";
  return isExact && consumers.some(({ tables }) => tables !== undefined);
}

interface Wakes {
  readonly onEvents: () => void;
  readonly onChanges: () => void;
  readonly onTasks: () => void;
}
