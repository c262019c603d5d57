import type { Logger } from "../base/log.ts";
import type { ConsumerMetrics } from "../consumers/metrics.ts";
import type { Database } from "../db/database.ts";
import type { Partitioning } from "../db/migrations.ts";
import type { DeliveryMetrics } from "../delivery/metrics.ts";
import type { QueueDirectory } from "../tasks/directory.ts";
import type { EnqueueContext } from "../tasks/enqueue.ts";
import type { TaskMetrics } from "../tasks/metrics.ts";
import { type ConnectOptions, changesChannel, EVENTSALSA_KEY, leaderKey } from "./connect.ts";

/** What was found out when connecting. */
export interface ConnectionFacts {
  readonly isBehindPooler: boolean;
  readonly sequence: string;
  readonly partitioning: Partitioning;
}

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
  readonly deliveryMetrics: DeliveryMetrics;
  readonly onEnd: (workerId: string) => void;
}

export interface TaskWorkerContext {
  readonly directory: QueueDirectory;
  readonly metrics: TaskMetrics;
  /** Where workers are told that there is work. */
  readonly channel: string;
  readonly sequence: string;
  readonly isPooled: boolean;
}

type ConnectionContext = Omit<
  WorkerContext,
  "logger" | "metrics" | "tasks" | "deliveryMetrics" | "onEnd"
>;

/** What all workers of one connection share. */
export function connectionContext(
  db: Database,
  url: string,
  options: ConnectOptions,
  { sequence, partitioning }: ConnectionFacts,
): ConnectionContext {
  const { compat, directUrl, notifyChannel } = options;
  return {
    openDatabase: (poolSize, logger) => db.another(poolSize, logger),
    directUrl: directUrl ?? url,
    changesChannel: changesChannel(db.names),
    notifyChannel: notifyChannel ?? "worker_events",
    announces: notifyChannel !== undefined,
    leaderKey: compat === "eventsalsa" ? EVENTSALSA_KEY : leaderKey(db.names),
    sequence,
    partitioning,
    compat,
  };
}

/** The parts of a connected Tidemill that outlive a call. */
export interface Engine {
  readonly db: Database;
  readonly logger: Logger;
  readonly enqueue: EnqueueContext;
  /** Workers of this process need not wait to hear of it. */
  readonly tasksEnqueued: () => void;
}
