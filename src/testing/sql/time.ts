import type { Queryable } from "../../db/database.ts";
import { statement } from "../../db/statement.ts";

// The database's clock decides when anything is due, so time passes by everything coming nearer.
const PASS = [
  statement(
    "testing_pass_tasks",
    `UPDATE {schema}.tasks
        SET run_at = run_at - make_interval(secs => $1::float8),
            created_at = created_at - make_interval(secs => $1::float8),
            lease_until = lease_until - make_interval(secs => $1::float8)`,
  ),
  statement(
    "testing_pass_packs",
    `UPDATE {schema}.task_packs
        SET created_at = created_at - make_interval(secs => $1::float8),
            lease_until = lease_until - make_interval(secs => $1::float8)`,
  ),
  statement(
    "testing_pass_claims",
    "UPDATE {schema}.task_claims SET check_at = check_at - make_interval(secs => $1::float8)",
  ),
  statement(
    "testing_pass_holds",
    "UPDATE {schema}.key_holds SET until = until - make_interval(secs => $1::float8)",
  ),
  statement(
    "testing_pass_idempotency",
    `UPDATE {schema}.task_idempotency
        SET expires_at = expires_at - make_interval(secs => $1::float8)`,
  ),
  statement(
    "testing_pass_schedules",
    `WITH passed AS (
       UPDATE {schema}.schedules
          SET next_at = next_at - make_interval(secs => $1::float8),
              retry_at = retry_at - make_interval(secs => $1::float8)
       RETURNING tenant, name, next_at
     )
     DELETE FROM {schema}.schedule_firings AS firing
      USING passed
      WHERE firing.tenant = passed.tenant AND firing.name = passed.name
        AND firing.kind = 'tick' AND firing.tick >= passed.next_at`,
  ),
];

export async function passTime(tx: Queryable, seconds: number): Promise<void> {
  for (const one of PASS) await tx.query(one, [seconds]);
}

const UNFINISHED = statement(
  "testing_unfinished",
  `SELECT id::text AS id
     FROM {schema}.tasks
    WHERE queue = ANY ($1::text[])
      AND (state = 'running' OR run_at <= NOW())
    UNION ALL
   SELECT id::text
     FROM {schema}.task_packs
    WHERE queue = ANY ($1::text[])
    ORDER BY id
    LIMIT 20`,
);

/** Tasks of these queues that run or could run. */
export async function findUnfinished(db: Queryable, queues: readonly string[]): Promise<string[]> {
  const rows = await db.query<{ id: string }>(UNFINISHED, [[...queues]]);
  return rows.map((row) => row.id);
}
