import { ConfigError } from "../base/errors.ts";
import { mixedHash } from "../base/identifier.ts";
import { refuseUnknown, requireNumber, requireOneOf } from "../base/options.ts";
import type { SqlExecutor } from "../db/executor.ts";
import type { PersistedEvent } from "../events/event.ts";
import { REBUILD_SUFFIX } from "./rebuild/names.ts";
import { checkTables, type RebuildTarget } from "./rebuild/target.ts";

/** The batch's transaction: what a handler writes through it commits with the checkpoint. */
export interface ConsumerTx extends SqlExecutor {
  query<Row = Record<string, unknown>>(
    text: string,
    values?: unknown[],
  ): Promise<{ rows: Row[]; rowCount: number | null }>;
}

export interface HandlerContext {
  readonly tx: ConsumerTx;
  /** Aborts when the batch runs out of time or the worker must stop at once. */
  readonly signal: AbortSignal;
  readonly consumer: string;
  readonly workerId: string;
  /**
   * Whether the event is handled for a rebuild, into copies of the consumer's tables. Then nothing
   * else may be written, and nobody told: whatever the event caused has happened long ago.
   */
  readonly isRebuild: boolean;
  /** A declared table as SQL is to spell it: quoted, and in a rebuild with the copy's schema. */
  readonly table: (name: string) => string;
}

export type EventHandler = (event: PersistedEvent, context: HandlerContext) => unknown;

/**
 * What happens to an event that keeps failing. "quarantine" stops this consumer and raises an
 * alarm; "park" sets the event's stream aside and goes on; "stop-worker" ends the whole worker, as
 * the source systems do.
 */
export type OnFailure = "quarantine" | "park" | "stop-worker";

export interface ConsumerOptions {
  /** Called for each event in position order, one at a time. */
  readonly handle: EventHandler;
  /**
   * Called once per batch, after its last event and before its checkpoint is saved: for what is
   * gathered from events, such as messages to others. When it throws, the batch is undone; an error
   * with `retryable` counts as an outage and never against the events. Defaults to nothing.
   */
  readonly beforeCommit?: (context: HandlerContext) => unknown;
  /** Only events of streams of these types. Defaults to all. */
  readonly aggregateTypes?: readonly string[];
  /** Only events of these types. Defaults to all. */
  readonly eventTypes?: readonly string[];
  /**
   * Splits the consumer by a hash of the stream id, so that several workers run it. Order is kept
   * within a stream, not between streams. Recorded at first start; see `consumer repartition`.
   *
   * Defaults to 1.
   */
  readonly partitions?: number;
  /** Defaults to the worker's `onFailure`. */
  readonly onFailure?: OnFailure;
  /**
   * Every table that the handler writes, as "table" or "schema.table", so that the projection can
   * be rebuilt beside itself. See docs/how-to/rebuild-a-projection.md.
   *
   * Defaults to none: the consumer cannot be rebuilt.
   */
  readonly tables?: readonly string[];
}

/** A named reader of the log. The name is its identity: renaming it starts from the beginning. */
export interface Consumer extends ConsumerOptions {
  readonly name: string;
}

const OPTION_KEYS = [
  "handle",
  "beforeCommit",
  "aggregateTypes",
  "eventTypes",
  "partitions",
  "onFailure",
  "tables",
];
export const ON_FAILURE: readonly OnFailure[] = ["quarantine", "park", "stop-worker"];
export const PARTITIONS_MAX = 1024;
const NAME_BYTES_MAX = 200;

/** Defines a consumer. Refuses names and options that could not work. */
export function consumer(name: string, options: ConsumerOptions): Consumer {
  if (typeof name !== "string" || name.trim() === "") {
    throw new ConfigError("a consumer needs a name that is not empty");
  }
  if (Buffer.byteLength(name) > NAME_BYTES_MAX) {
    throw new ConfigError(`consumer name ${JSON.stringify(name)} is over ${NAME_BYTES_MAX} bytes`);
  }
  if (/\/\d+$/.test(name)) {
    throw new ConfigError(
      `consumer name ${JSON.stringify(name)} must not end in "/" and a number: partitions do`,
    );
  }
  if (name.endsWith(REBUILD_SUFFIX)) {
    throw new ConfigError(
      `consumer name ${JSON.stringify(name)} must not end in "${REBUILD_SUFFIX}": rebuilds do`,
    );
  }
  refuseUnknown(`consumer "${name}"`, options, OPTION_KEYS);
  if (typeof options.handle !== "function") {
    throw new ConfigError(`consumer "${name}" needs handle: a function`);
  }
  if (options.beforeCommit !== undefined && typeof options.beforeCommit !== "function") {
    throw new ConfigError(`beforeCommit of consumer "${name}" must be a function`);
  }
  if (options.partitions !== undefined) {
    const rule = { min: 1, max: PARTITIONS_MAX, integer: true };
    requireNumber(`partitions of consumer "${name}"`, options.partitions, rule);
  }
  if (options.onFailure !== undefined) {
    requireOneOf(`onFailure of consumer "${name}"`, options.onFailure, ON_FAILURE);
  }
  if (options.tables !== undefined) checkTables(name, options.tables);
  return Object.freeze({ name, ...options });
}

/** One partition of a consumer: what is assigned to a worker and has a checkpoint. */
export interface Partition {
  /** Name of its rows: the consumer's own when it is not split. */
  readonly name: string;
  readonly consumer: Consumer;
  readonly index: number;
  readonly count: number;
  /** Set for a partition of a rebuild. */
  readonly rebuild?: RebuildTarget;
}

export function partitionsOf(consumer: Consumer): Partition[] {
  const count = consumer.partitions ?? 1;
  return partitionNames(consumer.name, count).map((name, index) => ({
    name,
    consumer,
    index,
    count,
  }));
}

export function partitionNames(consumer: string, count: number): string[] {
  if (count === 1) return [consumer];
  return Array.from({ length: count }, (_, index) => `${consumer}/${index}`);
}

/** Whether the partition is the one to handle this event. */
export function concerns(partition: Partition, event: PersistedEvent): boolean {
  const { aggregateTypes, eventTypes } = partition.consumer;
  if (aggregateTypes !== undefined && aggregateTypes.length > 0) {
    if (!aggregateTypes.includes(event.streamType)) return false;
  }
  if (eventTypes !== undefined && eventTypes.length > 0) {
    if (!eventTypes.includes(event.type)) return false;
  }
  return partition.count === 1 || mixedHash(event.streamId) % partition.count === partition.index;
}
