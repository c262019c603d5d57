import type { Queryable } from "../../db/database.ts";
import { statement } from "../../db/statement.ts";
import { holdsTask } from "./open-packs.ts";

const COMMON = `
          id::text AS id, tenant, queue, kind, priority, partition_key, payload, bytes,
          content_type, attempt, max_attempts, created_at, run_at, claimed_at, leased_by,
          lease_generation, options`;

const liveColumns = (reason: string): string => `
   SELECT ${COMMON}, state, lease_until, progress, ${reason} AS reason, NULL::text AS cause,
          NULL::text AS result, NULL::timestamptz AS finished_at`;
export const LIVE_COLUMNS = liveColumns("cancel_reason");
// Why it is to be stopped, else why its last attempt came to nothing. A list would pay for that
// with a look into every partition for each of its rows.
const LIVE = `${liveColumns(`COALESCE(cancel_reason, (
            SELECT failure.reason
              FROM {schema}.task_failures AS failure
             WHERE failure.task_id = task.id
             ORDER BY failure.at DESC, failure.attempt DESC
             LIMIT 1))`)}
     FROM {schema}.tasks AS task`;

// A pack as the tasks that it holds; `packs` has those that may be asked for.
export const inPacks = (packs: string): string => `
   SELECT one.id::text AS id, tenant, queue, kind, priority, one.key AS partition_key,
          one.payload, NULL::bytea AS bytes, NULL::text AS content_type,
          (claim_id IS NOT NULL)::int AS attempt, max_attempts, created_at, created_at AS run_at,
          claimed_at, leased_by, (claim_id IS NOT NULL)::int AS lease_generation, options,
          CASE WHEN claim_id IS NULL THEN 'pending' ELSE 'running' END AS state, lease_until,
          NULL::jsonb AS progress, NULL::text AS reason, NULL::text AS cause,
          NULL::text AS result, NULL::timestamptz AS finished_at
     FROM (${packs}) AS pack
    CROSS JOIN LATERAL unnest(pack.ids, string_to_array(pack.payloads, chr(30)),
                              string_to_array(pack.keys, chr(30)))
               AS one(id, payload, key)`;
export const ENDED_COLUMNS = `
   SELECT ${COMMON}, state, NULL::timestamptz AS lease_until, NULL::jsonb AS progress, reason,
          NULL::text AS cause, result, finished_at`;
const ENDED = `${ENDED_COLUMNS}
     FROM {schema}.task_history`;
export const DEAD_COLUMNS = `
   SELECT ${COMMON}, 'dead' AS state, NULL::timestamptz AS lease_until, NULL::jsonb AS progress,
          reason, cause, NULL::text AS result, dead_at AS finished_at`;
const DEAD = `${DEAD_COLUMNS}
     FROM {schema}.dead_letters`;

/** A task wherever it is now. */
export interface TaskRow {
  readonly id: string;
  readonly tenant: string;
  readonly queue: string;
  readonly kind: string | null;
  readonly priority: number;
  readonly partition_key: string | null;
  readonly payload: string | null;
  readonly bytes: Buffer | null;
  readonly content_type: string | null;
  readonly attempt: number;
  readonly max_attempts: number;
  readonly created_at: Date;
  readonly run_at: Date;
  readonly claimed_at: Date | null;
  readonly leased_by: string | null;
  readonly lease_generation: number;
  readonly options: Record<string, unknown> | null;
  readonly state:
    | "scheduled"
    | "pending"
    | "running"
    | "completed"
    | "failed"
    | "cancelled"
    | "dead";
  readonly lease_until: Date | null;
  readonly progress: unknown;
  readonly reason: string | null;
  readonly cause: string | null;
  readonly result: string | null;
  readonly finished_at: Date | null;
}

const OF_SCOPE = `
      AND ($2::text IS NULL OR tenant = $2)
      AND ($3::text[] IS NULL OR queue = ANY ($3::text[]))`;

// One statement, one snapshot: a task that moves from one table to another is in exactly one.
const FIND = statement(
  "tasks_find",
  `${LIVE} WHERE id = ANY ($1::text::bigint[]) ${OF_SCOPE}
    UNION ALL ${inPacks(`
            SELECT *
              FROM {schema}.task_packs
             WHERE id = ANY (ARRAY(
                     SELECT found.id
                       FROM unnest($1::text::bigint[]) AS given(id)
                      CROSS JOIN LATERAL (
                        SELECT pack.id
                          FROM {schema}.task_packs AS pack
                         WHERE ${holdsTask("given.id")}
                      ) AS found
                      GROUP BY found.id))`)} WHERE one.id = ANY ($1::text::bigint[]) ${OF_SCOPE}
    UNION ALL ${ENDED} WHERE id = ANY ($1::text::bigint[]) ${OF_SCOPE}
    UNION ALL ${DEAD} WHERE id = ANY ($1::text::bigint[]) ${OF_SCOPE}`,
);

/** Whose tasks may be found, and of which queues; both default to all. */
export interface TaskScope {
  readonly tenant?: string | undefined;
  readonly queues?: readonly string[] | undefined;
}

export async function findTasks(
  db: Queryable,
  ids: readonly string[],
  { tenant, queues }: TaskScope,
): Promise<TaskRow[]> {
  const values = [`{${ids.join(",")}}`, tenant ?? null, queues ?? null];
  return await db.query<TaskRow>(FIND, values);
}

const FAILURES = statement(
  "task_failures_of",
  `SELECT at, attempt, outcome, reason, stack, worker_id
     FROM {schema}.task_failures
    WHERE task_id = $1
      AND ($2::text IS NULL
           OR EXISTS (SELECT FROM {schema}.tasks AS live
                       WHERE live.id = $1 AND live.tenant = $2)
           OR EXISTS (SELECT FROM {schema}.task_history AS ended
                       WHERE ended.id = $1 AND ended.tenant = $2)
           OR EXISTS (SELECT FROM {schema}.dead_letters AS dead
                       WHERE dead.id = $1 AND dead.tenant = $2))
    ORDER BY at, attempt`,
);

export interface FailureRow {
  readonly at: Date;
  readonly attempt: number;
  readonly outcome: string;
  readonly reason: string;
  readonly stack: string | null;
  readonly worker_id: string | null;
}

export async function readFailures(
  db: Queryable,
  id: string,
  tenant?: string,
): Promise<FailureRow[]> {
  return await db.query<FailureRow>(FAILURES, [id, tenant ?? null]);
}
