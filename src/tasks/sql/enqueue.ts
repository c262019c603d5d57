import type { Queryable } from "../../db/database.ts";
import { statement } from "../../db/statement.ts";

/**
 * Separates the rows of a column in one text parameter. JSON never holds it raw, keys that hold it
 * are refused. Drivers disagree on how arrays are encoded, and all of them are slower.
 */
export const SEPARATOR = "\u001e";

// Rows that share everything but payload and key share a shape, so that a bulk of equal rows sends
// one. The rows are put in order before ids and claim orders are drawn: first given is first run.
// The trigger draws the transaction id before any of that, which the floors of lanes rest on.
const INSERT = statement(
  "tasks_insert",
  `WITH given AS (
     SELECT shape.*, row.id, row.payload, row.partition_key, row.bucket
       FROM unnest(string_to_array($1::text, chr(30)), string_to_array($2::text, chr(30), ''),
                   $3::text::smallint[], $4::text::smallint[], $6::text::bigint[])
            WITH ORDINALITY AS row(payload, partition_key, bucket, shape, id, ord)
       JOIN jsonb_to_recordset($5::text::jsonb) AS shape(
              shape smallint, lane int, queue text, tenant text, kind text, priority smallint,
              max_attempts int, run_at timestamptz, delay float8, is_binary boolean,
              content_type text, options jsonb)
         ON shape.shape = row.shape
      ORDER BY row.ord
   ), timed AS (
     SELECT given.*, nextval('{schema}.task_numbers') AS number,
            COALESCE(given.run_at, NOW() + make_interval(secs => given.delay), NOW()) AS due_at
       FROM given
   ), inserted AS (
     INSERT INTO {schema}.tasks
            (id, lane, queue, tenant, kind, priority, max_attempts, run_at, state, claim_order,
             partition_key, partition_bucket, payload, bytes, content_type, options)
     SELECT COALESCE(id, number), CASE WHEN bucket IS NULL THEN lane ELSE lane - bucket END,
            queue, tenant, kind, priority, max_attempts, due_at,
            CASE WHEN due_at > NOW() THEN 'scheduled' ELSE 'pending' END,
            CASE WHEN due_at > NOW() THEN NULL ELSE number END,
            partition_key, bucket,
            CASE WHEN is_binary IS TRUE THEN NULL ELSE payload END,
            CASE WHEN is_binary IS TRUE THEN decode(payload, 'base64') END,
            content_type, options
       FROM timed
     RETURNING id, queue, priority
   ), tally AS (
     INSERT INTO {schema}.task_tally (queue, priority, amount)
     SELECT queue, priority, count(*) FROM inserted GROUP BY queue, priority
   )
   SELECT string_agg(id::text, ',') AS ids FROM inserted`,
);

/** What rows have in common. `lane` of keyed rows is that of their key space's bucket 0. */
export interface TaskShape {
  readonly shape: number;
  readonly lane: number;
  readonly queue: string;
  readonly tenant: string;
  readonly kind?: string;
  readonly priority: number;
  readonly max_attempts: number;
  readonly run_at?: string;
  readonly delay?: number;
  readonly is_binary?: boolean;
  readonly content_type?: string;
  readonly options?: object;
}

export interface TaskRows {
  readonly payloads: readonly string[];
  /** "" for none. */
  readonly keys: readonly string[];
  readonly buckets: readonly (number | "NULL")[];
  readonly shapes: readonly number[];
  /** Drawn before, or "NULL"; empty when none was. */
  readonly ids: readonly string[];
}

/** Ids in the order of the rows. */
export async function insertTasks(
  db: Queryable,
  rows: TaskRows,
  shapes: readonly TaskShape[],
): Promise<string[]> {
  const [row] = await db.query<{ ids: string }>(INSERT, [
    rows.payloads.join(SEPARATOR),
    rows.keys.join(SEPARATOR),
    `{${rows.buckets.join(",")}}`,
    `{${rows.shapes.join(",")}}`,
    JSON.stringify(shapes),
    `{${rows.ids.join(",")}}`,
  ]);
  return row?.ids.split(",") ?? [];
}

const LOCK_KEYS = statement(
  "task_keys_lock",
  `SELECT pg_advisory_xact_lock(hashtextextended(key, $1::bigint))
     FROM unnest(string_to_array($2::text, chr(30))) AS key`,
);

/** To the end of the transaction; keys must be sorted, or two callers wait for each other. */
export async function lockKeys(
  tx: Queryable,
  keySpaceId: number,
  keys: readonly string[],
): Promise<void> {
  await tx.query(LOCK_KEYS, [keySpaceId, keys.join(SEPARATOR)]);
}
