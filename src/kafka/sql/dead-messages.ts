import type { Queryable } from "../../db/database.ts";
import { statement } from "../../db/statement.ts";
import type { TopicRef } from "./offsets.ts";

export interface NewDeadMessage {
  readonly partition: number;
  readonly offset: bigint;
  readonly reason: string;
  readonly key: Buffer | undefined;
  readonly value: Buffer | undefined;
  /** JSON. */
  readonly headers: string;
  readonly timestampMs: number | undefined;
}

// Once, like any other is stored once, because the offset moves with it. One that was set back
// by a person buries it again.
const BURY = statement(
  "kafka_dead_bury",
  `INSERT INTO {schema}.kafka_dead_messages
          (source, topic, topic_id, "partition", message_offset, reason, key, value, headers,
           message_at)
   SELECT $1, $2, $3::uuid, dead.*
     FROM unnest($4::int[], $5::bigint[], $6::text[], $7::bytea[], $8::bytea[], $9::jsonb[],
                 $10::timestamptz[]) AS dead`,
);

/** In the transaction that moves the offset past them. */
export async function buryMessages(
  tx: Queryable,
  { source, topic, topicId }: TopicRef,
  dead: readonly NewDeadMessage[],
): Promise<void> {
  await tx.query(BURY, [
    source,
    topic,
    topicId,
    dead.map(({ partition }) => partition),
    dead.map(({ offset }) => String(offset)),
    dead.map(({ reason }) => reason),
    dead.map(({ key }) => key ?? null),
    dead.map(({ value }) => value ?? null),
    dead.map(({ headers }) => headers),
    dead.map(({ timestampMs }) =>
      timestampMs === undefined ? null : new Date(timestampMs).toISOString(),
    ),
  ]);
}

export interface DeadMessageRow {
  readonly id: string;
  readonly source: string;
  readonly topic: string;
  readonly topic_id: string;
  readonly partition: number;
  readonly message_offset: string;
  readonly reason: string;
  readonly key: Buffer | null;
  readonly value: Buffer | null;
  readonly headers: readonly { readonly name: string; readonly value: string }[];
  readonly message_at: Date | null;
  readonly created_at: Date;
}

const COLUMNS = `id::text, source, topic, topic_id, "partition", message_offset::text, reason, key,
          value, headers, message_at, created_at`;

const LIST = statement(
  "kafka_dead_list",
  `SELECT ${COLUMNS}
     FROM {schema}.kafka_dead_messages
    WHERE source = $1 AND id > $2
    ORDER BY id
    LIMIT $3`,
);

/** The oldest first, above that id. */
export async function listDeadMessages(
  db: Queryable,
  source: string,
  after: string,
  limit: number,
): Promise<DeadMessageRow[]> {
  return await db.query<DeadMessageRow>(LIST, [source, after, limit]);
}

const TAKE = statement(
  "kafka_dead_take",
  `DELETE FROM {schema}.kafka_dead_messages
    WHERE source = $1 AND id = ANY($2::bigint[])
   RETURNING ${COLUMNS}`,
);

/** Removes them; who wants to try again does so in the same transaction. */
export async function takeDeadMessages(
  db: Queryable,
  source: string,
  ids: readonly string[],
): Promise<DeadMessageRow[]> {
  return await db.query<DeadMessageRow>(TAKE, [source, ids]);
}

const FORGET = statement(
  "kafka_dead_forget",
  `DELETE FROM {schema}.kafka_dead_messages
    WHERE id IN (SELECT id
                   FROM {schema}.kafka_dead_messages
                  WHERE source = $1 AND created_at < NOW() - make_interval(days => $2)
                  ORDER BY created_at
                  LIMIT $3
                    FOR UPDATE SKIP LOCKED)`,
);

/** Removes those of a source that nobody looked at for so long, some at a time. */
export async function forgetDeadMessages(
  db: Queryable,
  source: string,
  days: number,
  limit: number,
): Promise<void> {
  await db.query(FORGET, [source, days, limit]);
}
