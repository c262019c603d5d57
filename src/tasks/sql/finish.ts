import type { Queryable } from "../../db/database.ts";
import { statement } from "../../db/statement.ts";
import { SEPARATOR } from "./enqueue.ts";
import { tell } from "./feed.ts";

export const HISTORY_COLUMNS = `
            id, created_at, run_at, claimed_at, claim_id, leased_by, lease_generation, attempt,
            max_attempts, priority, tenant, queue, kind, partition_key, payload, bytes,
            content_type, options`;

const TALLY = `
     INSERT INTO {schema}.task_tally (queue, priority, amount)
     SELECT queue, priority, -count(*) FROM done GROUP BY queue, priority`;

// The fence and the move to history are one statement. No row: the lease was lost. Claims are few
// and tasks are many, so tasks name theirs by its place. The ids are sent back only when some were
// refused.
const COMPLETE = statement(
  "tasks_complete",
  `WITH done AS (
     DELETE FROM {schema}.tasks AS task
      USING unnest($1::text::bigint[], $2::text::int[], $3::text::int[],
                   string_to_array($4::text, chr(30), ''))
            AS given(id, generation, claim, result)
      WHERE task.id = given.id
        AND task.lease_generation = given.generation
        AND task.claim_id = ($5::uuid[])[given.claim]
     RETURNING task.id, task.created_at, task.run_at, task.claimed_at, task.claim_id,
               task.leased_by, task.lease_generation, task.attempt, task.max_attempts,
               task.priority, task.tenant, task.queue, task.kind, task.partition_key,
               task.payload, task.bytes, task.content_type, task.options, given.result
   ), history AS (
     INSERT INTO {schema}.task_history (state, result, ${HISTORY_COLUMNS})
     SELECT 'completed', result, ${HISTORY_COLUMNS} FROM done
   ), tally AS (${TALLY}
   ), ledger AS (
     DELETE FROM {schema}.task_claims WHERE claim_id = ANY ($6::uuid[])
   ),${tell({ rows: "done", state: "'completed'", worker: "leased_by" })}
   SELECT CASE WHEN count(*) = $7::int THEN NULL
               ELSE (SELECT COALESCE(string_agg(id::text, ','), '') FROM done) END AS accepted
     FROM done`,
);

export interface Completion {
  readonly id: string;
  readonly generation: number;
  readonly claimId: string;
  /** JSON, or "" for none. */
  readonly result: string;
}

/** The ids that were accepted, or undefined when all were. `endedClaims` leave the ledger. */
export async function completeTasks(
  db: Queryable,
  tasks: readonly Completion[],
  endedClaims: readonly string[],
): Promise<Set<string> | undefined> {
  const hasResults = tasks.some((task) => task.result !== "");
  const places = new Map<string, number>();
  for (const { claimId } of tasks) {
    if (!places.has(claimId)) places.set(claimId, places.size + 1);
  }
  const [row] = await db.query<{ accepted: string | null }>(COMPLETE, [
    `{${tasks.map((task) => task.id).join(",")}}`,
    `{${tasks.map((task) => task.generation).join(",")}}`,
    `{${tasks.map((task) => places.get(task.claimId)).join(",")}}`,
    hasResults ? tasks.map((task) => task.result).join(SEPARATOR) : "",
    [...places.keys()],
    [...endedClaims],
    tasks.length,
  ]);
  const accepted = row?.accepted;
  if (accepted === null || accepted === undefined) return undefined;
  return new Set(accepted.split(","));
}

// What became of completions whose COMMIT was not answered: history knows by the same triple.
const COMPLETED = statement(
  "tasks_find_completed",
  `SELECT given.id::text AS id
     FROM unnest($1::text::bigint[], $2::text::int[], $3::text::uuid[])
          AS given(id, generation, claim_id)
     JOIN {schema}.task_history AS ended
       ON ended.id = given.id
      AND ended.lease_generation = given.generation
      AND ended.claim_id = given.claim_id`,
);

export async function findCompleted(
  db: Queryable,
  tasks: readonly Completion[],
): Promise<Set<string>> {
  const rows = await db.query<{ id: string }>(COMPLETED, [
    `{${tasks.map((task) => task.id).join(",")}}`,
    `{${tasks.map((task) => task.generation).join(",")}}`,
    `{${tasks.map((task) => task.claimId).join(",")}}`,
  ]);
  return new Set(rows.map((row) => row.id));
}

// Asked only when a completion met a lock: which rows are free is told without waiting, and they
// are free again when the statement ends. A row that is gone is free as well: its end says so.
const LOCKED = statement(
  "tasks_find_locked",
  `WITH given AS MATERIALIZED (
     SELECT id FROM unnest($1::text::bigint[]) AS one(id)
   ), free AS MATERIALIZED (
     SELECT task.id
       FROM given
       JOIN {schema}.tasks AS task ON task.id = given.id
      ORDER BY task.id
        FOR UPDATE OF task SKIP LOCKED
   )
   SELECT task.id::text AS id
     FROM given
     JOIN {schema}.tasks AS task ON task.id = given.id
    WHERE task.id NOT IN (SELECT id FROM free)`,
);

/** Of these tasks, the ids of those whose rows somebody has locked. */
export async function findLocked(
  db: Queryable,
  tasks: readonly Pick<Completion, "id">[],
): Promise<Set<string>> {
  const ids = `{${tasks.map((task) => task.id).join(",")}}`;
  const rows = await db.query<{ id: string }>(LOCKED, [ids]);
  return new Set(rows.map((row) => row.id));
}

const GIVEN = `
     SELECT * FROM jsonb_to_recordset($1::text::jsonb) AS given(
       id bigint, generation int, claim_id uuid, holder uuid, delay float8, refund boolean,
       outcome text, reason text, stack text, state text, cause text, park boolean)`;

const HELD = `task.id = given.id
        AND task.lease_generation = given.generation
        AND task.claim_id = given.claim_id
        AND (given.holder IS NULL OR task.leased_by = given.holder)`;

/**
 * The rows that are free, locked in the order of their ids. What somebody has locked is not waited
 * for, or one handler with an open transaction would keep the ends of all others waiting.
 */
const lockFree = (columns: string, condition = "TRUE"): string => `
     SELECT task.id, ${columns}
       FROM given
       JOIN {schema}.tasks AS task
         ON ${HELD}
      WHERE ${condition}
      ORDER BY task.id
        FOR UPDATE OF task SKIP LOCKED`;

/** What was done; and what is held as before, because somebody had it locked. */
const answer = (done: string, condition = "TRUE"): string => `
   SELECT id::text AS id, accepted
     FROM (SELECT given.id, given.id IN (SELECT id FROM ${done}) AS accepted, task.cancel_reason
             FROM given
             JOIN {schema}.tasks AS task
               ON ${HELD}) AS task
    WHERE accepted OR ${condition}`;

/** What the database said of ends. What is in neither was lost or cancelled. */
export interface Ended {
  readonly accepted: ReadonlySet<string>;
  /** Still held, but somebody had the row locked: to be sent again. */
  readonly locked: ReadonlySet<string>;
}

type EndedRow = { readonly id: string; readonly accepted: boolean };

function toEnded(rows: readonly EndedRow[]): Ended {
  const idsOf = (some: readonly EndedRow[]): Set<string> => new Set(some.map(({ id }) => id));
  return {
    accepted: idsOf(rows.filter((row) => row.accepted)),
    locked: idsOf(rows.filter((row) => !row.accepted)),
  };
}

const NOT_CANCELLED = "task.cancel_reason IS NULL";

/** How an attempt ended that did not complete the task. */
export interface Setback {
  readonly id: string;
  readonly generation: number;
  readonly claim_id: string;
  /** Of a worker whose own decision it is: void when another holds the task under the claim. */
  readonly holder?: string;
  readonly outcome: "failed" | "nack" | "abandoned" | "timeout" | "cancelled" | "lost";
  /** Kept with the task; none for what was merely given back. */
  readonly reason?: string;
  readonly stack?: string;
}

export interface PutBack extends Setback {
  readonly delay: number;
  /** The attempt does not count. */
  readonly refund: boolean;
}

const FAILURES = `
     INSERT INTO {schema}.task_failures
            (task_id, attempt, outcome, reason, stack, worker_id, claim_id)
     SELECT id, attempt, outcome, reason, stack, leased_by, claim_id
       FROM done
      WHERE reason IS NOT NULL`;

// Rows are locked before a number is drawn: who draws a claim order must have a transaction id. A
// keyed task keeps its order; when it must wait, a hold keeps the later tasks of its key behind it.
// Of several of one key the hold names the first. Whoever was cancelled meanwhile is not put back.
const PUT_BACK = statement(
  "tasks_put_back",
  `WITH given AS (${GIVEN}
   ), done AS MATERIALIZED (${lockFree(
     `task.lane, task.tenant, task.queue, task.priority, task.partition_key, task.claim_order,
            task.attempt, task.claim_id, task.leased_by, task.on_probation, given.delay,
            given.refund, given.outcome, given.reason, given.stack`,
     NOT_CANCELLED,
   )}
   ), back AS (
     UPDATE {schema}.tasks AS task
        SET state = CASE WHEN done.partition_key IS NULL AND done.delay > 0
                         THEN 'scheduled' ELSE 'pending' END,
            claim_order = CASE WHEN done.partition_key IS NOT NULL THEN task.claim_order
                               WHEN done.delay > 0 THEN NULL
                               ELSE nextval('{schema}.task_numbers') END,
            run_at = CASE WHEN done.delay > 0 THEN NOW() + make_interval(secs => done.delay)
                          ELSE task.run_at END,
            lane = CASE WHEN done.on_probation AND NOT done.refund AND done.partition_key IS NULL
                        THEN
                          (SELECT line.lane FROM {schema}.task_lanes AS line
                            WHERE line.queue = done.queue AND line.tenant = done.tenant
                              AND line.priority = done.priority)
                        ELSE task.lane END,
            on_probation = done.on_probation AND done.refund,
            attempt = CASE WHEN done.refund THEN task.attempt - 1 ELSE task.attempt END,
            claim_id = NULL, leased_by = NULL, claimed_at = NULL, lease_until = NULL,
            progress = NULL
       FROM done
      WHERE task.id = done.id
   ), failures AS (${FAILURES}
   ), holds AS (
     INSERT INTO {schema}.key_holds AS hold
            (key_space_id, tenant, partition_key, lane, why, until, task_id, reason)
     SELECT DISTINCT ON (done.lane, done.tenant, done.partition_key)
            (-done.lane - 1) / 360, done.tenant, done.partition_key, done.lane, 'retry',
            NOW() + make_interval(secs => done.delay), done.id, done.reason
       FROM done
      WHERE done.partition_key IS NOT NULL
        AND (done.delay > 0 OR NOT done.refund)
      ORDER BY done.lane, done.tenant, done.partition_key, done.claim_order
         ON CONFLICT (key_space_id, tenant, partition_key, why) DO UPDATE
        SET until = excluded.until, task_id = excluded.task_id, reason = excluded.reason
   ),${tell({
     rows: "done",
     state: "CASE WHEN partition_key IS NULL AND delay > 0 THEN 'scheduled' ELSE 'pending' END",
     attempt: "CASE WHEN refund THEN attempt - 1 ELSE attempt END",
     worker: "leased_by",
     reason: "COALESCE(reason, outcome)",
   })}${answer("done", NOT_CANCELLED)}`,
);

export async function putBackTasks(db: Queryable, tasks: readonly PutBack[]): Promise<Ended> {
  return toEnded(await db.query<EndedRow>(PUT_BACK, [JSON.stringify(tasks)]));
}

export interface TerminalEnd extends Setback {
  readonly state: "failed" | "cancelled";
}

const END = statement(
  "tasks_end",
  `WITH given AS (${GIVEN}
   ), free AS MATERIALIZED (${lockFree(
     "given.state AS end_state, given.outcome, given.reason, given.stack",
   )}
   ), done AS (
     DELETE FROM {schema}.tasks AS task
      USING free
      WHERE task.id = free.id
     RETURNING task.*, free.end_state, free.outcome, free.reason, free.stack
   ), history AS (
     INSERT INTO {schema}.task_history (state, reason, ${HISTORY_COLUMNS})
     SELECT end_state, COALESCE(reason, cancel_reason), ${HISTORY_COLUMNS} FROM done
   ), failures AS (${FAILURES}
   ), tally AS (${TALLY}
   ),${tell({
     rows: "done",
     state: "end_state",
     worker: "leased_by",
     reason: "COALESCE(reason, cancel_reason)",
   })}${answer("free")}`,
);

/** Moves tasks to history that will not be tried again. */
export async function endTasks(db: Queryable, tasks: readonly TerminalEnd[]): Promise<Ended> {
  return toEnded(await db.query<EndedRow>(END, [JSON.stringify(tasks)]));
}

export interface Burial extends Setback {
  readonly cause: "attempts_exhausted" | "worker_lost" | "invalid_payload";
  /** Holds back the later tasks of the key until a person decides. */
  readonly park: boolean;
}

const DEAD_COLUMNS = `
            id, created_at, run_at, claim_order, claimed_at, claim_id, leased_by,
            lease_generation, lane, attempt, max_attempts, losses, priority, partition_bucket,
            tenant, queue, kind, partition_key, payload, bytes, content_type, options`;

const BURY = statement(
  "tasks_bury",
  `WITH given AS (${GIVEN}
   ), free AS MATERIALIZED (${lockFree(
     "given.cause, given.outcome, given.reason, given.stack, given.park",
     NOT_CANCELLED,
   )}
   ), done AS (
     DELETE FROM {schema}.tasks AS task
      USING free
      WHERE task.id = free.id
     RETURNING task.*, free.cause, free.outcome, free.reason, free.stack, free.park
   ), dead AS (
     INSERT INTO {schema}.dead_letters (cause, reason, ${DEAD_COLUMNS})
     SELECT cause, COALESCE(reason, ''), ${DEAD_COLUMNS} FROM done
   ), failures AS (${FAILURES}
   ), tally AS (${TALLY}
   ), holds AS (
     INSERT INTO {schema}.key_holds AS hold
            (key_space_id, tenant, partition_key, lane, why, task_id, reason)
     SELECT DISTINCT ON (lane, tenant, partition_key)
            (-lane - 1) / 360, tenant, partition_key, lane, 'parked', id, reason
       FROM done
      WHERE park AND partition_key IS NOT NULL
      ORDER BY lane, tenant, partition_key, claim_order
         ON CONFLICT (key_space_id, tenant, partition_key, why) DO UPDATE
        SET task_id = excluded.task_id, reason = excluded.reason
   ),${tell({ rows: "done", state: "'dead'", worker: "leased_by", reason: "reason" })}${answer(
     "free",
     NOT_CANCELLED,
   )}`,
);

export async function buryTasks(db: Queryable, tasks: readonly Burial[]): Promise<Ended> {
  return toEnded(await db.query<EndedRow>(BURY, [JSON.stringify(tasks)]));
}

/** What is to be written of a task whose handler ended. */
export type Settlement =
  | { readonly kind: "complete"; readonly result: string }
  | { readonly kind: "put-back"; readonly row: PutBack }
  | { readonly kind: "end"; readonly row: TerminalEnd }
  | { readonly kind: "bury"; readonly row: Burial };
