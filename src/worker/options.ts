import { ConfigError } from "../base/errors.ts";
import { quoteIdentifier } from "../base/identifier.ts";
import type { Logger } from "../base/log.ts";
import { refuseUnknown, requireNumber, requireOneOf, withoutUndefined } from "../base/options.ts";
import type { AssignmentStrategy } from "../cluster/assignment.ts";
import type { LeaderStrategy } from "../cluster/election.ts";
import { type Consumer, ON_FAILURE, type OnFailure, partitionsOf } from "../consumers/consumer.ts";
import { type HttpJobsOptions, resolveHttpJobs } from "../delivery/jobs/options.ts";
import { type DeliverOptions, resolveDeliverOptions } from "../delivery/options.ts";
import type { TaskHandler } from "../tasks/queue.ts";
import type { RemoteWork } from "../tasks/runner.ts";

/** Durations are milliseconds. */
export interface WorkerOptions {
  /** Consumers that this worker can run; names must differ. Defaults to none. */
  readonly consumers?: readonly Consumer[];
  /** Queues whose tasks this worker runs: `queue.handle(...)`. Defaults to none. */
  readonly handlers?: readonly TaskHandler[];
  /** Seconds of waiting that weigh as much as one step of priority. Defaults to 10. */
  readonly agingSeconds?: number;
  /**
   * How consumers are spread over workers. "sticky" moves as few as possible and only to workers
   * that have them; "round-robin" is the source systems' table.
   *
   * Defaults to "sticky".
   */
  readonly assignment?: AssignmentStrategy;
  /**
   * Connections for batches. More consumers than this take turns.
   *
   * Defaults to 10.
   */
  readonly batchConnections?: number;
  /** Rest between consecutive batches of a consumer. Defaults to 0. */
  readonly batchPause?: number;
  /** Most events in one batch, which is one transaction. Defaults to 500. */
  readonly batchSize?: number;
  /** Longest a batch may take before it is rolled back and counts as failed. Defaults to 30,000. */
  readonly batchTimeout?: number;
  /** Handlers that run at once in this worker. Defaults to 10. */
  readonly concurrency?: number;
  /**
   * Whether this worker sends the webhooks of tasks that ended, anywhere in the cluster; as an
   * object, how.
   *
   * Defaults to false.
   */
  readonly deliverWebhooks?: boolean | DeliverOptions;
  /** How often the log is looked at with the poll strategy. Defaults to 200. */
  readonly dispatcherInterval?: number;
  /**
   * "notify" listens for news and still looks every second, or every five seconds in a worker
   * without consumers.
   *
   * Defaults to "poll".
   */
  readonly dispatcherStrategy?: "poll" | "notify";
  /** How long a stop waits for batches in flight before it interrupts them. Defaults to 30,000. */
  readonly drainTimeout?: number;
  /** Starts of one tenant before another of the same queue has its turn. Defaults to 50. */
  readonly fairnessTurn?: number;
  /**
   * How a missing position is passed. "epoch" waits for proof. "unsafe-time" is the source systems'
   * rule and loses events whose append takes longer than `staleGapThreshold`.
   *
   * Defaults to "epoch".
   */
  readonly gapPolicy?: "epoch" | "unsafe-time";
  /** How often the worker shows that it lives. Defaults to 3,000. */
  readonly heartbeatInterval?: number;
  /** Age of a heartbeat at which others take over its consumers. Defaults to 10,000. */
  readonly heartbeatTimeout?: number;
  /**
   * Whether this worker makes the calls of `http` queues; as an object, how. Such a worker has no
   * handlers: its slots are the pool of calls. Start another one beside it for those.
   *
   * Defaults to false.
   */
  readonly httpJobs?: boolean | HttpJobsOptions;
  /** Days for which ended tasks and failures are kept. Defaults to 7. */
  readonly historyDays?: number;
  /** "advisory" needs a direct connection, "lease" none. Defaults to "advisory". */
  readonly leaderStrategy?: LeaderStrategy;
  /**
   * How long a claim is held before another worker may have the task. Renewed every third of this
   * while the handler runs, so it bounds recovery, not handlers.
   *
   * Defaults to 30.
   */
  readonly leaseSeconds?: number;
  /** Defaults to the logger of the connection. */
  readonly logger?: Logger;
  /** Failures in a row after which `onFailure` decides. Defaults to 5. */
  readonly maxConsecutiveFailures?: number;
  /** Longest rest of an idle consumer that nobody wakes. Defaults to 30,000. */
  readonly maxPollInterval?: number;
  /** Channel that appends announce on. Defaults to the connection's, else "worker_events". */
  readonly notifyChannel?: string;
  /** Address for LISTEN. Defaults to the connection's `directUrl`, else its address. */
  readonly notifyConnectionString?: string;
  /** What happens to a consumer whose event keeps failing. Defaults to "quarantine". */
  readonly onFailure?: OnFailure;
  /** First rest of an idle consumer, doubled while nothing comes. Defaults to 1,000. */
  readonly pollInterval?: number;
  /** Most memory for events that several consumers share. Defaults to 64 MiB. */
  readonly readCacheBytes?: number;
  /** Longest time between two looks of the leader at who is there. Defaults to 5,000. */
  readonly rebalanceInterval?: number;
  /** How far "unsafe-time" stays behind the visible head. Defaults to 8. */
  readonly staleGapHarborLag?: number;
  /** Age at which an open gap raises an alarm that names who holds it. Defaults to 10,000. */
  readonly staleGapThreshold?: number;
  /** How often tasks are looked for when nobody announces them. Defaults to 1,000. */
  readonly taskPollInterval?: number;
}

type Defaulted = Omit<WorkerOptions, "logger" | "notifyChannel" | "notifyConnectionString">;

export type ResolvedWorkerOptions = Readonly<Required<Defaulted>> &
  Pick<WorkerOptions, "logger" | "notifyChannel" | "notifyConnectionString"> & {
    /** Tasks are run by others, through this process. */
    readonly remote?: RemoteWork;
  };

export const WORKER_DEFAULTS: Required<Defaulted> = {
  agingSeconds: 10,
  assignment: "sticky",
  batchConnections: 10,
  batchPause: 0,
  batchSize: 500,
  batchTimeout: 30_000,
  concurrency: 10,
  consumers: [],
  deliverWebhooks: false,
  dispatcherInterval: 200,
  dispatcherStrategy: "poll",
  drainTimeout: 30_000,
  fairnessTurn: 50,
  gapPolicy: "epoch",
  handlers: [],
  heartbeatInterval: 3_000,
  heartbeatTimeout: 10_000,
  historyDays: 7,
  httpJobs: false,
  leaderStrategy: "advisory",
  leaseSeconds: 30,
  maxConsecutiveFailures: 5,
  maxPollInterval: 30_000,
  onFailure: "quarantine",
  pollInterval: 1_000,
  readCacheBytes: 64 * 1024 * 1024,
  rebalanceInterval: 5_000,
  staleGapHarborLag: 8,
  staleGapThreshold: 10_000,
  taskPollInterval: 1_000,
};

/** What the Go worker does, so that members of one cluster behave alike. */
export const EVENTSALSA_DEFAULTS: Required<Defaulted> = {
  ...WORKER_DEFAULTS,
  assignment: "round-robin",
  batchPause: 200,
  batchSize: 100,
  heartbeatInterval: 5_000,
  heartbeatTimeout: 30_000,
  onFailure: "stop-worker",
  staleGapThreshold: 30_000,
};

const OTHER_KEYS = ["logger", "notifyChannel", "notifyConnectionString"];

/** Applies defaults and refuses nonsense at start-up, where a person is watching. */
export function resolveWorkerOptions(
  options: WorkerOptions,
  compat: "eventsalsa" | undefined,
  remote?: RemoteWork,
): ResolvedWorkerOptions {
  const defaults = compat === "eventsalsa" ? EVENTSALSA_DEFAULTS : WORKER_DEFAULTS;
  refuseUnknown("worker", options, [...Object.keys(defaults), ...OTHER_KEYS]);
  const resolved = { ...defaults, ...withoutUndefined(options) } as ResolvedWorkerOptions;
  checkNumbers(resolved);
  checkChoices(resolved);
  if (remote === undefined) checkWork(resolved, compat);
  checkConsumers(resolved.consumers, resolved.onFailure, compat);
  checkHandlers(resolved.handlers, compat);
  if (compat === "eventsalsa" && resolved.assignment !== "round-robin") {
    throw new ConfigError('compat "eventsalsa" needs assignment "round-robin", as its members use');
  }
  return Object.freeze(remote === undefined ? resolved : { ...resolved, remote });
}

function checkWork(
  { consumers, handlers, deliverWebhooks, httpJobs }: ResolvedWorkerOptions,
  compat: "eventsalsa" | undefined,
): void {
  const isDelivering = resolveDeliverOptions(deliverWebhooks) !== undefined;
  if (isDelivering && compat !== undefined) {
    throw new ConfigError(`a worker of a compat "${compat}" cluster delivers no webhooks`);
  }
  const isCalling = resolveHttpJobs(httpJobs) !== undefined;
  if (isCalling && compat !== undefined) {
    throw new ConfigError(`a worker of a compat "${compat}" cluster makes no calls of tasks`);
  }
  if (isCalling && handlers.length > 0) {
    throw new ConfigError(
      "a worker with httpJobs has no handlers, because its slots are the pool of calls: " +
        "start another worker for them, in the same process if you like",
    );
  }
  if (isCalling || isDelivering || consumers.length > 0 || handlers.length > 0) return;
  throw new ConfigError(
    "a worker needs at least one consumer or handler: " +
      "consumers: [consumer(...)] or handlers: [queue.handle(...)]",
  );
}

function checkNumbers(options: ResolvedWorkerOptions): void {
  const whole = { min: 1, integer: true };
  requireNumber("batchConnections", options.batchConnections, { ...whole, max: 1000 });
  requireNumber("batchSize", options.batchSize, { ...whole, max: 100_000 });
  requireNumber("maxConsecutiveFailures", options.maxConsecutiveFailures, whole);
  requireNumber("readCacheBytes", options.readCacheBytes, { min: 1024 * 1024 });
  requireNumber("staleGapHarborLag", options.staleGapHarborLag, { min: 0, integer: true });
  requireNumber("batchPause", options.batchPause, { min: 0 });
  requireNumber("drainTimeout", options.drainTimeout, { min: 0 });
  requireNumber("agingSeconds", options.agingSeconds, { min: 0.001 });
  requireNumber("concurrency", options.concurrency, { ...whole, max: 10_000 });
  requireNumber("fairnessTurn", options.fairnessTurn, { ...whole, max: 10_000 });
  requireNumber("historyDays", options.historyDays, { ...whole, max: 3650 });
  requireNumber("leaseSeconds", options.leaseSeconds, { min: 1, max: 86_400 });
  requireNumber("taskPollInterval", options.taskPollInterval, { min: 10, max: 60_000 });
  for (const name of [
    "batchTimeout",
    "dispatcherInterval",
    "heartbeatInterval",
    "heartbeatTimeout",
    "maxPollInterval",
    "pollInterval",
    "rebalanceInterval",
    "staleGapThreshold",
  ] as const) {
    requireNumber(name, options[name], { min: 1, max: 2 ** 31 - 1 });
  }
  if (options.maxPollInterval < options.pollInterval) {
    throw new ConfigError("maxPollInterval must be at least pollInterval");
  }
  if (options.heartbeatTimeout < 2 * options.heartbeatInterval) {
    throw new ConfigError(
      "heartbeatTimeout must be at least twice heartbeatInterval, or one late heartbeat is a death",
    );
  }
}

function checkChoices(options: ResolvedWorkerOptions): void {
  requireOneOf("assignment", options.assignment, ["sticky", "round-robin"]);
  requireOneOf("dispatcherStrategy", options.dispatcherStrategy, ["poll", "notify"]);
  requireOneOf("gapPolicy", options.gapPolicy, ["epoch", "unsafe-time"]);
  requireOneOf("leaderStrategy", options.leaderStrategy, ["advisory", "lease"]);
  requireOneOf("onFailure", options.onFailure, ON_FAILURE);
  if (options.notifyChannel !== undefined) quoteIdentifier(options.notifyChannel);
}

function checkConsumers(
  consumers: readonly Consumer[],
  onFailure: OnFailure,
  compat: "eventsalsa" | undefined,
): void {
  if (!Array.isArray(consumers)) {
    throw new ConfigError("consumers must be a list: consumers: [consumer(...)]");
  }
  const seen = new Set<string>();
  for (const [index, one] of consumers.entries()) {
    if (one == null) throw new ConfigError(`consumer at index ${index} is missing`);
    if (!one.name) throw new ConfigError(`consumer at index ${index} has an empty name`);
    for (const { name } of partitionsOf(one)) {
      if (seen.has(name)) throw new ConfigError(`duplicate consumer name ${JSON.stringify(name)}`);
      seen.add(name);
    }
    if (compat === undefined) continue;
    if ((one.partitions ?? 1) > 1 || (one.onFailure ?? onFailure) !== "stop-worker") {
      throw new ConfigError(
        `consumer "${one.name}": partitions, quarantine and parking mean nothing to the other ` +
          `members of a compat "${compat}" cluster; use one partition and onFailure "stop-worker"`,
      );
    }
  }
}

function checkHandlers(handlers: readonly TaskHandler[], compat: "eventsalsa" | undefined): void {
  if (!Array.isArray(handlers)) {
    throw new ConfigError("handlers must be a list: handlers: [queue.handle(...)]");
  }
  if (compat !== undefined && handlers.length > 0) {
    throw new ConfigError(`a worker of a compat "${compat}" cluster runs consumers only`);
  }
  const seen = new Set<string>();
  for (const [index, one] of handlers.entries()) {
    const name: string | undefined = one?.queue?.name;
    if (name === undefined || typeof one.run !== "function") {
      throw new ConfigError(`handler at index ${index} is not one: use queue(...).handle(...)`);
    }
    if (seen.has(name)) throw new ConfigError(`two handlers for queue ${JSON.stringify(name)}`);
    seen.add(name);
  }
}

/** What a process has to carry, and what its silence means: people draw that to scale. */
export const processLoad = (options: ResolvedWorkerOptions): object => ({
  rssBytes: process.memoryUsage.rss(),
  heartbeatSeconds: options.heartbeatInterval / 1000,
  timeoutSeconds: options.heartbeatTimeout / 1000,
  leaseSeconds: options.leaseSeconds,
});
