import type { Queryable } from "../../db/database.ts";
import { statement } from "../../db/statement.ts";
import { tell } from "./feed.ts";

/**
 * Separates the rows of a column in one text parameter. JSON never holds it raw, keys that hold it
 * are refused. Drivers disagree on how arrays are encoded, and all of them are slower.
 */
export const SEPARATOR = "\u001e";

// Rows that share everything but payload and key share a shape, so that a bulk of equal rows sends
// one. Shapes become one row of arrays: a join with them would have to be sorted again, because
// numbers are drawn in the order of the rows, and first given is first run. The trigger draws the
// transaction id before any number, which the floors of lanes rest on.
const INSERT = statement(
  "tasks_insert",
  `WITH inserted AS (
     INSERT INTO {schema}.tasks
            (id, lane, queue, tenant, kind, priority, max_attempts, run_at, state, claim_order,
             partition_key, partition_bucket, payload, bytes, content_type, options)
     SELECT COALESCE(id, number), lane - COALESCE(bucket, 0), queue, tenant, kind, priority,
            max_attempts, due_at,
            CASE WHEN due_at > NOW() THEN 'scheduled' ELSE 'pending' END,
            CASE WHEN due_at > NOW() THEN NULL ELSE number END,
            partition_key, bucket,
            CASE WHEN is_binary THEN NULL ELSE payload END,
            CASE WHEN is_binary THEN decode(substr(payload, 2), 'base64') END,
            content_type, options
       FROM (
         SELECT nextval('{schema}.task_numbers') AS number,
                row.id, row.payload, row.partition_key, row.bucket,
                shapes.lane[COALESCE(row.shape, 1)] AS lane,
                shapes.queue[COALESCE(row.shape, 1)] AS queue,
                shapes.tenant[COALESCE(row.shape, 1)] AS tenant,
                shapes.kind[COALESCE(row.shape, 1)] AS kind,
                shapes.priority[COALESCE(row.shape, 1)] AS priority,
                shapes.max_attempts[COALESCE(row.shape, 1)] AS max_attempts,
                shapes.due_at[COALESCE(row.shape, 1)] AS due_at,
                shapes.is_binary[COALESCE(row.shape, 1)] AS is_binary,
                shapes.content_type[COALESCE(row.shape, 1)] AS content_type,
                shapes.options[COALESCE(row.shape, 1)] AS options
           FROM (
             SELECT array_agg(lane) AS lane, array_agg(queue) AS queue,
                    array_agg(tenant) AS tenant, array_agg(kind) AS kind,
                    array_agg(priority) AS priority, array_agg(max_attempts) AS max_attempts,
                    array_agg(COALESCE(run_at, NOW() + make_interval(secs => delay), NOW()))
                      AS due_at,
                    array_agg(is_binary IS TRUE) AS is_binary,
                    array_agg(content_type) AS content_type, array_agg(options) AS options
               FROM (
                 SELECT *
                   FROM jsonb_to_recordset($5::text::jsonb) AS one(
                          shape int, lane int, queue text, tenant text, kind text,
                          priority smallint, max_attempts int, run_at timestamptz, delay float8,
                          is_binary boolean, content_type text, options jsonb)
                  ORDER BY shape
               ) AS ordered
           ) AS shapes
          CROSS JOIN unnest(string_to_array($1::text, chr(30)),
                            string_to_array($2::text, chr(30), ''),
                            $3::text::smallint[], $4::text::int[], $6::text::bigint[])
                AS row(payload, partition_key, bucket, shape, id)
       ) AS numbered
     RETURNING id, tenant, queue, state
   ), tally AS (
     INSERT INTO {schema}.task_tally (queue, priority, amount)
     SELECT queue, priority, sum(count)
       FROM jsonb_to_recordset($5::text::jsonb) AS one(queue text, priority smallint, count int)
      GROUP BY queue, priority
   ),${tell({ rows: "inserted", state: "state", attempt: "0" })}
   SELECT string_agg(id::text, ',') AS ids FROM inserted`,
);

/** What rows have in common. `lane` of keyed rows is that of their key space's bucket 0. */
export interface TaskShape {
  /** Counted from 1. */
  readonly shape: number;
  /** How many rows have it. */
  count: number;
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

/** Columns that all rows leave out are empty. */
export interface TaskRows {
  readonly payloads: readonly string[];
  /** "" for none. */
  readonly keys: readonly string[];
  readonly buckets: readonly (number | "NULL")[];
  /** Empty when there is one shape. */
  readonly shapes: readonly number[];
  /** Drawn before, or "NULL". */
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
    rows.keys.length === 0 ? null : rows.keys.join(SEPARATOR),
    `{${rows.buckets.join(",")}}`,
    `{${rows.shapes.join(",")}}`,
    JSON.stringify(shapes),
    `{${rows.ids.join(",")}}`,
  ]);
  return row?.ids.split(",") ?? [];
}

// A task alone is the commonest enqueue, and whoever waits for its start waits for this: a list of
// one costs the server half as much again.
const INSERT_ONE = statement(
  "task_insert",
  `WITH inserted AS (
     INSERT INTO {schema}.tasks
            (id, lane, queue, tenant, kind, priority, max_attempts, run_at, state, claim_order,
             partition_key, partition_bucket, payload, bytes, content_type, options)
     SELECT COALESCE($1::bigint, number), $2::int - COALESCE($3::smallint, 0), $4::text, $5::text,
            $6::text, $7::smallint, $8::int, due_at,
            CASE WHEN due_at > NOW() THEN 'scheduled' ELSE 'pending' END,
            CASE WHEN due_at > NOW() THEN NULL ELSE number END,
            $9::text, $3::smallint,
            CASE WHEN $10::boolean THEN NULL ELSE $11::text END,
            CASE WHEN $10::boolean THEN decode(substr($11::text, 2), 'base64') END,
            $12::text, $13::text::jsonb
       FROM (
         SELECT nextval('{schema}.task_numbers') AS number,
                COALESCE($14::timestamptz, NOW() + make_interval(secs => $15::float8), NOW())
                  AS due_at
       ) AS numbered
     RETURNING id, tenant, queue, state
   ), tally AS (
     INSERT INTO {schema}.task_tally (queue, priority, amount)
     VALUES ($4::text, $7::smallint, 1)
   ),${tell({ rows: "inserted", state: "state", attempt: "0", isOne: true })}
   SELECT id::text AS id FROM inserted`,
);

/** A task that is enqueued alone. */
export interface TaskRow {
  readonly payload: string;
  /** "" for none. */
  readonly key: string;
  readonly bucket: number | undefined;
  readonly shape: Omit<TaskShape, "shape" | "count">;
  /** Drawn before, or "NULL". */
  readonly id: string;
}

export async function insertTask(db: Queryable, task: TaskRow): Promise<string[]> {
  const { payload, key, bucket, shape, id } = task;
  const rows = await db.query<{ id: string }>(INSERT_ONE, [
    id === "NULL" ? null : id,
    shape.lane,
    bucket ?? null,
    shape.queue,
    shape.tenant,
    shape.kind ?? null,
    shape.priority,
    shape.max_attempts,
    key === "" ? null : key,
    shape.is_binary === true,
    payload,
    shape.content_type ?? null,
    shape.options === undefined ? null : JSON.stringify(shape.options),
    shape.run_at ?? null,
    shape.delay ?? null,
  ]);
  return rows.map((row) => row.id);
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
