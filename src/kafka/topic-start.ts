import { ConfigError } from "../base/errors.ts";
import type { Database } from "../db/database.ts";
import type { ResolvedIngestOptions } from "./ingest-options.ts";
import type { KafkaSource } from "./source.ts";
import { introduceOffsets, readOffsets, readTopicIds, type TopicRef } from "./sql/offsets.ts";

export interface TopicStartContext {
  readonly source: KafkaSource;
  readonly db: Database;
  readonly options: ResolvedIngestOptions;
}

/** Writes down where partitions begin that have no row yet. */
export async function beginTopic(
  { source, db, options }: TopicStartContext,
  ref: TopicRef,
  partitions: number,
): Promise<void> {
  const known = await readOffsets(db, ref);
  if (known.size >= partitions) return;
  if (known.size === 0) requireSameClient(ref, await readTopicIds(db, ref));
  const ranges = await source.listOffsets(ref.topic, partitions);
  const starts = ranges.map(({ earliest, latest }, partition) => ({
    partition,
    earliest,
    initial: options.startFrom === "earliest" ? earliest : latest,
  }));
  await introduceOffsets(db, ref, starts);
}

/**
 * One of the clients knows the ids of topics, and the other makes one up. After a change of the
 * client all messages would seem to be those of another topic, and be stored again.
 */
function requireSameClient({ topic, topicId }: TopicRef, known: readonly string[]): void {
  if (known.every((id) => isMadeUp(id) === isMadeUp(topicId))) return;
  throw new ConfigError(
    `topic ${topic} was read through another client, which knows it by another id: stop all ` +
      `ingests, set topic_id to ${topicId} in its rows of kafka_offsets, and start again`,
  );
}

/** Kafka draws version 4; ours are made of a name. */
const isMadeUp = (id: string): boolean => id[14] === "8";
