import type { Queryable } from "../../db/database.ts";
import { statement } from "../../db/statement.ts";
import { tell } from "./feed.ts";
import { HISTORY_COLUMNS } from "./finish.ts";
import type { TaskScope } from "./inspect.ts";

const CANCEL_WAITING = statement(
  "task_cancel_waiting",
  `WITH done AS (
     DELETE FROM {schema}.tasks
      WHERE id = $1
        AND tenant = COALESCE($3, tenant)
        AND state IN ('pending', 'scheduled')
     RETURNING *
   ), history AS (
     INSERT INTO {schema}.task_history (state, reason, ${HISTORY_COLUMNS})
     SELECT 'cancelled', $2, ${HISTORY_COLUMNS} FROM done
   ), tally AS (
     INSERT INTO {schema}.task_tally (queue, priority, amount)
     SELECT queue, priority, -1 FROM done
   ),${tell({ rows: "done", state: "'cancelled'", reason: "$2::text" })}
   SELECT id FROM done`,
);

/** True when it waited, and now never runs. */
export async function cancelWaiting(
  db: Queryable,
  id: string,
  reason: string,
  tenant?: string,
): Promise<boolean> {
  return (await db.query(CANCEL_WAITING, [id, reason, tenant ?? null])).length === 1;
}

const CANCEL_RUNNING = statement(
  "task_cancel_running",
  `UPDATE {schema}.tasks
      SET cancel_reason = COALESCE(cancel_reason, $2)
    WHERE id = $1
      AND tenant = COALESCE($3, tenant)
      AND state = 'running'
   RETURNING id`,
);

/** True when it runs: its worker is to be told. */
export async function cancelRunning(
  db: Queryable,
  id: string,
  reason: string,
  tenant?: string,
): Promise<boolean> {
  return (await db.query(CANCEL_RUNNING, [id, reason, tenant ?? null])).length === 1;
}

// The row is locked, and the transaction id there, before a number is drawn.
const HURRY = statement(
  "task_hurry",
  `WITH waiting AS MATERIALIZED (
     SELECT id, tenant, queue, attempt, state
       FROM {schema}.tasks
      WHERE id = $1
        AND tenant = COALESCE($2, tenant)
        AND state IN ('pending', 'scheduled')
        FOR UPDATE
   ), hold AS (
     UPDATE {schema}.key_holds
        SET until = NOW()
      WHERE task_id = (SELECT id FROM waiting)
        AND why = 'retry'
   ),${tell({
     rows: "(SELECT * FROM waiting WHERE state = 'scheduled') AS hurried",
     state: "'pending'",
     reason: "'hurried'",
   })}
   UPDATE {schema}.tasks AS task
      SET state = 'pending',
          run_at = LEAST(task.run_at, NOW()),
          claim_order = COALESCE(task.claim_order, nextval('{schema}.task_numbers'))
     FROM waiting
    WHERE task.id = waiting.id
   RETURNING task.id`,
);

/** Makes a task that waits for its time, or for its next attempt, run now. */
export async function hurryTask(db: Queryable, id: string, tenant?: string): Promise<boolean> {
  return (await db.query(HURRY, [id, tenant ?? null])).length === 1;
}

const DEAD_FILTER = `
        WHERE ($1::text[] IS NULL OR queue = ANY ($1::text[]))
          AND ($2::text IS NULL OR tenant = $2)
          AND ($3::text IS NULL OR cause = $3)
          AND ($4::text IS NULL OR kind = $4)
          AND ($5::text IS NULL OR id = ANY ($5::text::bigint[]))
          AND ($6::text IS NULL OR partition_key = $6)
          AND ($7::timestamptz IS NULL OR dead_at < $7)`;

export interface DeadFilter extends TaskScope {
  readonly cause?: string;
  readonly kind?: string;
  readonly ids?: readonly string[];
  readonly partitionKey?: string;
  readonly diedBefore?: Date;
}

const filterValues = (filter: DeadFilter): unknown[] => [
  filter.queues ?? null,
  filter.tenant ?? null,
  filter.cause ?? null,
  filter.kind ?? null,
  filter.ids === undefined ? null : `{${filter.ids.join(",")}}`,
  filter.partitionKey ?? null,
  filter.diedBefore?.toISOString() ?? null,
];

const REVIVED_COLUMNS = `
            id, created_at, lease_generation, max_attempts, priority, tenant, queue, kind,
            partition_key, partition_bucket, payload, bytes, content_type, options`;

// A keyed task comes back at its old place, before those of its key that still wait; others go to
// the end of their lane. A key that was parked behind it flows again. Letters are locked in their
// order, and one that is locked is waited for: the next of its key, redriven without it, would run
// first.
const REDRIVE = statement(
  "dead_letters_redrive",
  `WITH picked AS MATERIALIZED (
     SELECT id FROM {schema}.dead_letters ${DEAD_FILTER}
      ORDER BY claim_order
      LIMIT $8
        FOR UPDATE
   ), done AS (
     DELETE FROM {schema}.dead_letters AS dead
      USING picked
      WHERE dead.id = picked.id
     RETURNING dead.*
   ), back AS (
     INSERT INTO {schema}.tasks (state, run_at, lane, claim_order, ${REVIVED_COLUMNS})
     SELECT 'pending', NOW(),
            CASE WHEN ordered.partition_key IS NOT NULL THEN ordered.lane
                 ELSE (SELECT line.lane FROM {schema}.task_lanes AS line
                        WHERE line.queue = ordered.queue AND line.tenant = ordered.tenant
                          AND line.priority = ordered.priority) END,
            CASE WHEN ordered.partition_key IS NOT NULL THEN ordered.claim_order
                 ELSE nextval('{schema}.task_numbers') END,
            ${REVIVED_COLUMNS}
       FROM (SELECT * FROM done ORDER BY done.claim_order) AS ordered
   ), tally AS (
     INSERT INTO {schema}.task_tally (queue, priority, amount)
     SELECT queue, priority, count(*) FROM done GROUP BY queue, priority
   ), holds AS (
     DELETE FROM {schema}.key_holds
      WHERE why = 'parked' AND task_id IN (SELECT id FROM done)
   ),${tell({ rows: "done", state: "'pending'", attempt: "0", reason: "'redriven'" })}
   SELECT id::text AS id FROM done`,
);

/** Ids that run again, with all their attempts. */
export async function redriveDeadLetters(
  tx: Queryable,
  filter: DeadFilter,
  max: number,
): Promise<string[]> {
  const rows = await tx.query<{ id: string }>(REDRIVE, [...filterValues(filter), max]);
  return rows.map((row) => row.id);
}

const WEIGH = statement(
  "dead_letters_weigh",
  `SELECT count(*)::int AS tasks,
          COALESCE(sum(octet_length(one.payload)), 0)::float8
            + COALESCE(sum(octet_length(one.bytes)), 0)::float8 AS bytes
     FROM (SELECT payload, bytes FROM {schema}.dead_letters ${DEAD_FILTER}
            ORDER BY claim_order
            LIMIT $8) AS one`,
);

/** How many a redrive of so many would take, and what their payloads weigh. */
export async function weighDeadLetters(
  db: Queryable,
  filter: DeadFilter,
  max: number,
): Promise<{ readonly tasks: number; readonly bytes: number }> {
  type Weight = { readonly tasks: number; readonly bytes: number };
  const [weight] = await db.query<Weight>(WEIGH, [...filterValues(filter), max]);
  return weight ?? { tasks: 0, bytes: 0 };
}

// Up to so many. Callers know milliseconds only: what is told is not before what was counted.
const COUNT = statement(
  "dead_letters_count",
  `SELECT count(*)::int AS count,
          date_trunc('milliseconds', clock_timestamp()) + INTERVAL '1 millisecond' AS at
     FROM (SELECT FROM {schema}.dead_letters ${DEAD_FILTER} LIMIT $8) AS one`,
);

/** How many there are, and until when that was so. */
export async function countDeadLetters(
  db: Queryable,
  filter: DeadFilter,
  max: number,
): Promise<{ readonly count: number; readonly at: Date }> {
  const values = [...filterValues(filter), max];
  const [row] = await db.query<{ count: number; at: Date }>(COUNT, values);
  if (row === undefined) throw new Error("the database did not count");
  return row;
}

const PURGE = statement(
  "dead_letters_purge",
  `WITH picked AS MATERIALIZED (
     SELECT id FROM {schema}.dead_letters ${DEAD_FILTER}
      ORDER BY id
      LIMIT $8
        FOR UPDATE SKIP LOCKED
   ), done AS (
     DELETE FROM {schema}.dead_letters AS dead
      USING picked
      WHERE dead.id = picked.id
     RETURNING dead.id, dead.tenant, dead.queue, dead.attempt
   ), holds AS (
     DELETE FROM {schema}.key_holds
      WHERE why = 'parked' AND task_id IN (SELECT id FROM done)
   ),${tell({ rows: "done", state: "'purged'" })}
   SELECT id::text AS id FROM done`,
);

export async function purgeDeadLetters(
  tx: Queryable,
  filter: DeadFilter,
  max: number,
): Promise<string[]> {
  const rows = await tx.query<{ id: string }>(PURGE, [...filterValues(filter), max]);
  return rows.map((row) => row.id);
}

const EDIT = statement(
  "dead_letter_edit",
  `UPDATE {schema}.dead_letters
      SET payload = $2, bytes = $3, content_type = $4
    WHERE id = $1
      AND ($5::text IS NULL OR tenant = $5)
      AND ($6::text[] IS NULL OR queue = ANY ($6::text[]))
   RETURNING id`,
);

/** JSON, or bytes with their type. */
export type NewPayload =
  | { readonly json: string }
  | { readonly bytes: Uint8Array; readonly contentType: string };

export async function editDeadLetter(
  db: Queryable,
  id: string,
  payload: NewPayload,
  { tenant, queues }: TaskScope,
): Promise<boolean> {
  const values =
    "json" in payload
      ? [payload.json, null, null]
      : [null, Buffer.from(payload.bytes), payload.contentType];
  return (await db.query(EDIT, [id, ...values, tenant ?? null, queues ?? null])).length === 1;
}

// A task that ended without having died: refused for good, or cancelled. It starts anew.
const REVIVE = statement(
  "task_revive",
  `WITH done AS (
     DELETE FROM {schema}.task_history
      WHERE id = $1
        AND tenant = COALESCE($2, tenant)
        AND state IN ('failed', 'cancelled')
     RETURNING *
   ), back AS (
     INSERT INTO {schema}.tasks
            (state, run_at, lane, claim_order, id, created_at, lease_generation, max_attempts,
             priority, tenant, queue, kind, partition_key, partition_bucket, payload, bytes,
             content_type, options)
     SELECT 'pending', NOW(),
            CASE WHEN done.partition_key IS NULL THEN
                   (SELECT line.lane FROM {schema}.task_lanes AS line
                     WHERE line.queue = done.queue AND line.tenant = done.tenant
                       AND line.priority = done.priority)
                 ELSE -(COALESCE((SELECT space.id FROM {schema}.key_spaces AS space
                                   WHERE space.base_id = queue.key_space_id
                                     AND space.tenant = done.tenant), queue.key_space_id) * 360
                        + {schema}.bucket_of(done.partition_key) + 1)
            END,
            nextval('{schema}.task_numbers'), done.id, done.created_at, done.lease_generation,
            done.max_attempts, done.priority, done.tenant, done.queue, done.kind,
            done.partition_key, {schema}.bucket_of(done.partition_key), done.payload, done.bytes,
            done.content_type, done.options
       FROM done
       JOIN {schema}.queues AS queue ON queue.name = done.queue
   ), tally AS (
     INSERT INTO {schema}.task_tally (queue, priority, amount)
     SELECT queue, priority, 1 FROM done
   ),${tell({ rows: "done", state: "'pending'", attempt: "0", reason: "'retried'" })}
   SELECT id FROM done`,
);

export async function reviveTask(db: Queryable, id: string, tenant?: string): Promise<boolean> {
  return (await db.query(REVIVE, [id, tenant ?? null])).length === 1;
}

// By the index of ids, which each partition has: history has no other.
const FORGET_ENDED = statement(
  "task_history_forget",
  `WITH edge AS (
     SELECT COALESCE($1::timestamptz, NOW() - make_interval(secs => $2)) AS at
   ), picked AS (
     SELECT id, finished_at
       FROM {schema}.task_history
      WHERE finished_at < (SELECT at FROM edge)
        AND ($3::text IS NULL OR tenant = $3)
        AND ($4::text[] IS NULL OR queue = ANY ($4::text[]))
      LIMIT $5
   ), done AS (
     DELETE FROM {schema}.task_history AS old
      USING picked
      WHERE old.id = picked.id
        AND old.finished_at = picked.finished_at
        AND ($3::text IS NULL OR old.tenant = $3)
     RETURNING old.id, old.tenant, old.queue, old.attempt
   ),${tell({ rows: "done", state: "'purged'" })}
   SELECT (SELECT count(*)::int FROM done) AS deleted, at AS edge FROM edge`,
);

export async function deleteEnded(
  db: Queryable,
  edge: { readonly before: Date } | { readonly olderThanMs: number },
  max: number,
  { tenant, queues }: TaskScope,
): Promise<{ readonly deleted: number; readonly edge: Date }> {
  const [before, seconds] =
    "before" in edge ? [edge.before.toISOString(), null] : [null, edge.olderThanMs / 1000];
  const values = [before, seconds, tenant ?? null, queues ?? null, max];
  const [row] = await db.query<{ deleted: number; edge: Date }>(FORGET_ENDED, values);
  if (row === undefined) throw new Error("the database did not say what it deleted");
  return row;
}
