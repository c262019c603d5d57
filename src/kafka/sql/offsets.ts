import type { Queryable } from "../../db/database.ts";
import { statement } from "../../db/statement.ts";

/** A topic as it is now: made again under the same name it has another id. */
export interface TopicRef {
  /** Of the ingest: tells clusters and purposes apart. */
  readonly source: string;
  readonly topic: string;
  readonly topicId: string;
}

const READ = statement(
  "kafka_offsets_read",
  `SELECT "partition", next_offset::text
     FROM {schema}.kafka_offsets
    WHERE source = $1 AND topic_id = $2`,
);

interface OffsetRow {
  readonly partition: number;
  readonly next_offset: string;
}

/** The next offset of each partition that was ever begun with. */
export async function readOffsets(
  db: Queryable,
  { source, topicId }: TopicRef,
): Promise<Map<number, bigint>> {
  const rows = await db.query<OffsetRow>(READ, [source, topicId]);
  return new Map(rows.map(({ partition, next_offset }) => [partition, BigInt(next_offset)]));
}

const TOPIC_IDS = statement(
  "kafka_topic_ids",
  "SELECT DISTINCT topic_id FROM {schema}.kafka_offsets WHERE source = $1 AND topic = $2",
);

/** The ids under which topics of that name were ever read. */
export async function readTopicIds(db: Queryable, { source, topic }: TopicRef): Promise<string[]> {
  const rows = await db.query<{ topic_id: string }>(TOPIC_IDS, [source, topic]);
  return rows.map(({ topic_id }) => topic_id);
}

// All partitions at once, whoever holds them: two members that begin a topic together must not take
// each other's rows for those of an earlier topic. Only the first topic of its name may begin at
// its end; one that was made again, and a partition that was added, are read from their beginning,
// because what is in them was written for us.
const INTRODUCE = statement(
  "kafka_offsets_introduce",
  `INSERT INTO {schema}.kafka_offsets (source, topic, topic_id, "partition", next_offset)
   SELECT $1, $2, $3::uuid, begun."partition",
          CASE WHEN EXISTS (SELECT FROM {schema}.kafka_offsets WHERE source = $1 AND topic = $2)
               THEN begun.earliest ELSE begun.initial END
     FROM unnest($4::int[], $5::bigint[], $6::bigint[]) AS begun("partition", earliest, initial)
    ORDER BY begun."partition"
       ON CONFLICT DO NOTHING`,
);

export interface PartitionStart {
  readonly partition: number;
  /** The oldest message that Kafka still has. */
  readonly earliest: bigint;
  /** Where a topic is begun that was never seen. */
  readonly initial: bigint;
}

/** Writes down where partitions begin that have no row yet. */
export async function introduceOffsets(
  db: Queryable,
  { source, topic, topicId }: TopicRef,
  starts: readonly PartitionStart[],
): Promise<void> {
  await db.query(INTRODUCE, [
    source,
    topic,
    topicId,
    starts.map(({ partition }) => partition),
    starts.map(({ earliest }) => String(earliest)),
    starts.map(({ initial }) => String(initial)),
  ]);
}

const MOVE = statement(
  "kafka_offset_move",
  `UPDATE {schema}.kafka_offsets
      SET next_offset = $5, updated_at = NOW()
    WHERE source = $1 AND topic_id = $2 AND "partition" = $3 AND next_offset = $4
   RETURNING "partition"`,
);

export interface OffsetMove {
  readonly partition: number;
  /** What must be stored now, or somebody else has moved on. */
  readonly from: bigint;
  readonly to: bigint;
}

/** Whether it was still what was expected. The row is locked until the transaction ends. */
export async function moveOffset(
  tx: Queryable,
  { source, topicId }: TopicRef,
  { partition, from, to }: OffsetMove,
): Promise<boolean> {
  const values = [source, topicId, partition, String(from), String(to)];
  const rows = await tx.query(MOVE, values);
  return rows.length === 1;
}
