import type { Queryable } from "../../db/database.ts";
import { statement } from "../../db/statement.ts";

export interface NewRefusedMessage {
  readonly topic: string;
  readonly reason: string;
  readonly key: Buffer | undefined;
  readonly value: Buffer | undefined;
  /** JSON. */
  readonly headers: string;
}

const KEEP = statement(
  "kafka_refused_keep",
  `INSERT INTO {schema}.kafka_refused_messages (publisher, topic, reason, key, value, headers)
   SELECT $1, refused.*
     FROM unnest($2::text[], $3::text[], $4::bytea[], $5::bytea[], $6::jsonb[]) AS refused`,
);

/** In the transaction that moves the publisher past them, so each is kept once. */
export async function keepRefused(
  tx: Queryable,
  publisher: string,
  refused: readonly NewRefusedMessage[],
): Promise<void> {
  await tx.query(KEEP, [
    publisher,
    refused.map(({ topic }) => topic),
    refused.map(({ reason }) => reason),
    refused.map(({ key }) => key ?? null),
    refused.map(({ value }) => value ?? null),
    refused.map(({ headers }) => headers),
  ]);
}

export interface RefusedRow {
  readonly id: string;
  readonly publisher: string;
  readonly topic: string;
  readonly reason: string;
  readonly key: Buffer | null;
  readonly value: Buffer | null;
  readonly headers: readonly { readonly name: string; readonly value: string }[];
  readonly created_at: Date;
}

const COLUMNS = "id::text, publisher, topic, reason, key, value, headers, created_at";

const LIST = statement(
  "kafka_refused_list",
  `SELECT ${COLUMNS}
     FROM {schema}.kafka_refused_messages
    WHERE id > $2::bigint AND publisher = COALESCE($1, publisher)
    ORDER BY id
    LIMIT $3`,
);

/** The oldest first, above that id. */
export async function listRefused(
  db: Queryable,
  publisher: string | undefined,
  after: string,
  limit: number,
): Promise<RefusedRow[]> {
  return await db.query<RefusedRow>(LIST, [publisher ?? null, after, limit]);
}

const TAKE = statement(
  "kafka_refused_take",
  `DELETE FROM {schema}.kafka_refused_messages
    WHERE id = ANY($1::bigint[])
   RETURNING ${COLUMNS}`,
);

/** Removes them; who wants to publish them again does so in the same transaction. */
export async function takeRefused(db: Queryable, ids: readonly string[]): Promise<RefusedRow[]> {
  return await db.query<RefusedRow>(TAKE, [ids]);
}
