import type { Queryable } from "../../db/database.ts";
import { statement } from "../../db/statement.ts";

/** A key of one tenant. `id` names both, for maps. */
export interface IdempotencyKey {
  readonly id: string;
  readonly tenant: string;
  readonly key: string;
  readonly hash: string;
  readonly seconds: number;
}

// An expired key is taken over in place, so that of two callers only one gets it.
const TAKE = statement(
  "idempotency_take",
  `INSERT INTO {schema}.task_idempotency AS old (tenant, key, hash, task_id, expires_at)
   SELECT given.tenant, given.key, given.hash, nextval('{schema}.task_numbers'),
          NOW() + make_interval(secs => given.seconds)
     FROM jsonb_to_recordset($1::text::jsonb)
          AS given(tenant text, key text, hash text, seconds float8)
       ON CONFLICT (tenant, key) DO UPDATE
      SET hash = excluded.hash, task_id = excluded.task_id, expires_at = excluded.expires_at,
          end_state = NULL, created_at = NOW()
    WHERE old.expires_at <= NOW()
   RETURNING tenant, key, task_id`,
);

interface KeyRow {
  readonly tenant: string;
  readonly key: string;
  readonly task_id: string;
}

const toTaken = (row: KeyRow): { id: string; taskId: string } => ({
  id: JSON.stringify([row.tenant, row.key]),
  taskId: row.task_id,
});

/** The keys that were free, each with the id drawn for its task. */
export async function takeIdempotencyKeys(
  db: Queryable,
  keys: readonly IdempotencyKey[],
): Promise<{ id: string; taskId: string }[]> {
  const rows = await db.query<KeyRow>(TAKE, [JSON.stringify(keys)]);
  return rows.map(toTaken);
}

const READ = statement(
  "idempotency_read",
  `SELECT known.tenant, known.key, known.hash, known.task_id
     FROM jsonb_to_recordset($1::text::jsonb) AS given(tenant text, key text)
     JOIN {schema}.task_idempotency AS known
       ON known.tenant = given.tenant AND known.key = given.key`,
);

export async function readIdempotencyKeys(
  db: Queryable,
  keys: readonly IdempotencyKey[],
): Promise<{ id: string; taskId: string; hash: string }[]> {
  const rows = await db.query<KeyRow & { hash: string }>(READ, [JSON.stringify(keys)]);
  return rows.map((row) => ({ ...toTaken(row), hash: row.hash }));
}

const READ_LIVE = statement(
  "idempotency_read_live",
  `SELECT known.tenant, known.key, known.hash, known.task_id
     FROM jsonb_to_recordset($1::text::jsonb) AS given(tenant text, key text)
     JOIN {schema}.task_idempotency AS known
       ON known.tenant = given.tenant AND known.key = given.key
    WHERE known.expires_at > NOW()`,
);

/** Only those that stand: an expired key is as good as none. */
export async function readLiveIdempotencyKeys(
  db: Queryable,
  keys: readonly IdempotencyKey[],
): Promise<{ id: string; taskId: string; hash: string }[]> {
  const rows = await db.query<KeyRow & { hash: string }>(READ_LIVE, [JSON.stringify(keys)]);
  return rows.map((row) => ({ ...toTaken(row), hash: row.hash }));
}

const FORGET = statement(
  "idempotency_forget",
  "DELETE FROM {schema}.task_idempotency WHERE task_id = ANY($1::text::bigint[])",
);

export async function forgetIdempotencyKeys(
  db: Queryable,
  taskIds: readonly string[],
): Promise<void> {
  await db.query(FORGET, [`{${taskIds.join(",")}}`]);
}

// Bounded, so that a long backlog of expired keys blocks nothing.
const EXPIRE = statement(
  "idempotency_expire",
  `DELETE FROM {schema}.task_idempotency
    WHERE (tenant, key) IN (
      SELECT tenant, key FROM {schema}.task_idempotency
       WHERE expires_at <= NOW()
       ORDER BY expires_at
       LIMIT $1
         FOR UPDATE SKIP LOCKED)
   RETURNING task_id`,
);

export async function removeExpiredIdempotencyKeys(db: Queryable, max: number): Promise<number> {
  const rows = await db.query(EXPIRE, [max]);
  return rows.length;
}
