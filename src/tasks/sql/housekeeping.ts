import type { Database, Queryable } from "../../db/database.ts";
import { statement } from "../../db/statement.ts";
import { tell } from "./feed.ts";

// Two statements: the second is asked whenever somebody enqueues. What ended since the oldest open
// snapshot is still in these indexes and is passed over, and of claims that are thousands a minute.
const PROBE_CLAIMS = statement(
  "claims_probe",
  `SELECT extract(epoch FROM check_at - NOW())::float8 AS seconds
     FROM {schema}.task_claims
    ORDER BY check_at
    LIMIT 1`,
);
const PROBE_SCHEDULED = statement(
  "scheduled_probe",
  `SELECT extract(epoch FROM run_at - NOW())::float8 AS seconds
     FROM {schema}.tasks
    WHERE claim_order IS NULL
    ORDER BY run_at
    LIMIT 1`,
);

/** Seconds until the next claim is to be looked at; negative when it is. */
export async function secondsToClaim(db: Queryable): Promise<number> {
  const [row] = await db.query<{ seconds: number }>(PROBE_CLAIMS);
  return row?.seconds ?? Infinity;
}

/** Seconds until the next scheduled task is due; negative when it is. */
export async function secondsToScheduled(db: Queryable): Promise<number> {
  const [row] = await db.query<{ seconds: number }>(PROBE_SCHEDULED);
  return row?.seconds ?? Infinity;
}

// The rows are locked, and so the transaction id is there, before numbers are drawn.
const PROMOTE = statement(
  "tasks_promote",
  `WITH due AS MATERIALIZED (
     SELECT id, run_at
       FROM {schema}.tasks
      WHERE claim_order IS NULL
        AND run_at <= NOW()
      ORDER BY run_at
      LIMIT $1
        FOR UPDATE SKIP LOCKED
   ), numbered AS MATERIALIZED (
     SELECT id, nextval('{schema}.task_numbers') AS number
       FROM (SELECT id FROM due ORDER BY run_at, id) AS ordered
   ), promoted AS (
     UPDATE {schema}.tasks AS task
        SET state = 'pending', claim_order = numbered.number
       FROM numbered
      WHERE task.id = numbered.id
        AND task.claim_order IS NULL
     RETURNING task.id, task.tenant, task.queue, task.attempt
   ),${tell({ rows: "promoted", state: "'pending'" })}
   SELECT count(*)::int AS count FROM promoted`,
);

export async function promoteTasks(tx: Queryable, max: number): Promise<number> {
  const [row] = await tx.query<{ count: number }>(PROMOTE, [max]);
  return row?.count ?? 0;
}

const TALLY = statement(
  "tasks_tally",
  `WITH gone AS (
     DELETE FROM {schema}.task_tally RETURNING queue, priority, amount
   ), summed AS (
     SELECT queue, priority, sum(amount) AS amount FROM gone GROUP BY queue, priority
   )
   INSERT INTO {schema}.task_depths AS known (queue, priority, depth)
   SELECT queue, priority, amount FROM summed WHERE amount <> 0
       ON CONFLICT (queue, priority) DO UPDATE SET depth = known.depth + excluded.depth`,
);

/** Adds up what was written since the last time. */
export async function sumTally(tx: Queryable): Promise<void> {
  await tx.query(TALLY);
}

/** Whose days are partitions. One at a time: who reads both may read them in either order. */
const DAILY = ["task_history", "task_failures"] as const;

const PARTITIONS = statement(
  "history_partitions",
  `SELECT {schema}.make_history_partitions($1::text, $2::int) AS made`,
);

/** Makes the daily partitions that are missing from today on. */
export async function makeHistoryPartitions(db: Database, daysAhead: number): Promise<number> {
  let count = 0;
  for (const table of DAILY) {
    const [row] = await db.query<{ made: number }>(PARTITIONS, [table, daysAhead]);
    count += row?.made ?? 0;
  }
  return count;
}

const DROP = statement(
  "history_drop",
  `SELECT {schema}.drop_history_before($1::text, $2::int) AS dropped`,
);

/** Drops whole days, and what the default partitions hold of them. */
export async function dropHistory(db: Database, daysKept: number): Promise<number> {
  let count = 0;
  for (const table of DAILY) {
    const [row] = await db.query<{ dropped: number }>(DROP, [table, daysKept]);
    count += row?.dropped ?? 0;
  }
  return count;
}
