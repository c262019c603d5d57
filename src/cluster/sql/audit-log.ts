import type { Queryable } from "../../db/database.ts";
import { statement } from "../../db/statement.ts";

/** What somebody is about to do, through a server. */
export interface NewAct {
  readonly act: string;
  /** The method and the path of the call, with names of its parameters. */
  readonly call: string;
  readonly target: object;
  readonly reason: string | undefined;
  readonly tenant: string;
  readonly subject: string;
  readonly tokenId: string;
  readonly requestId: string;
}

const BEGIN = statement(
  "audit_begin",
  `INSERT INTO {schema}.audit_log
          (act, call, target, reason, tenant, subject, token_id, request_id)
   VALUES ($1, $2, $3::text::jsonb, $4, $5, $6, $7, $8)
   RETURNING id::text AS id`,
);

/** The id of its row. */
export async function beginAct(db: Queryable, one: NewAct): Promise<string> {
  const { act, call, target, reason, tenant, subject, tokenId, requestId } = one;
  const values = [act, call, JSON.stringify(target), reason ?? null];
  const rows = await db.query<{ id: string }>(BEGIN, [
    ...values,
    tenant,
    subject,
    tokenId,
    requestId,
  ]);
  const [row] = rows;
  if (row === undefined) throw new Error("the database did not number an act");
  return row.id;
}

const END = statement(
  "audit_end",
  "UPDATE {schema}.audit_log SET status = $2 WHERE id = $1 AND status IS NULL",
);

/** How it was answered. */
export async function endAct(db: Queryable, id: string, status: number): Promise<void> {
  await db.query(END, [id, status]);
}

// Along the primary key, which grows with time; by the number, which the output has as a text.
const LIST = statement(
  "audit_list",
  `SELECT one.id::text AS id, at, act, call, target, reason, tenant, subject,
          token_id AS "tokenId", request_id AS "requestId", status
     FROM {schema}.audit_log AS one
    WHERE one.id < COALESCE($1::bigint, 9223372036854775807)
    ORDER BY one.id DESC
    LIMIT $2`,
);

/** Something that was done, or refused. */
export interface ActRow extends Omit<NewAct, "reason"> {
  readonly id: string;
  readonly at: Date;
  readonly reason: string | null;
  /** Of the answer. Null: nobody knows how it ended. */
  readonly status: number | null;
}

/** Newest first, those before an id. */
export async function listActs(
  db: Queryable,
  before: string | undefined,
  limit: number,
): Promise<ActRow[]> {
  return await db.query<ActRow>(LIST, [before ?? null, limit]);
}

// Piece by piece, oldest first: a month of acts must not be one transaction.
const FORGET = statement(
  "audit_forget",
  `DELETE FROM {schema}.audit_log
    WHERE id IN (SELECT id FROM {schema}.audit_log
                  WHERE at < NOW() - make_interval(days => $1)
                  ORDER BY id
                  LIMIT $2)`,
);

export async function forgetActs(db: Queryable, days: number, limit: number): Promise<void> {
  await db.query(FORGET, [days, limit]);
}
