import type { Queryable } from "../../db/database.ts";
import { statement } from "../../db/statement.ts";
import type { LeaseToken } from "../task.ts";

const GIVEN = `unnest($1::text::bigint[], $2::text::int[], $3::text::uuid[])
          AS given(id, generation, claim_id)`;

const HELD = `task.id = given.id
        AND task.lease_generation = given.generation
        AND task.claim_id = given.claim_id`;

const tokenValues = (tokens: readonly LeaseToken[]): string[] => [
  `{${tokens.map((token) => token.taskId).join(",")}}`,
  `{${tokens.map((token) => token.generation).join(",")}}`,
  `{${tokens.map((token) => token.claimId).join(",")}}`,
];

// A row that its handler's own transaction has locked is not waited for: nobody can take it while
// it is locked, so it counts as held. A lease is never shortened.
const RENEW = statement(
  "tasks_renew",
  `WITH free AS MATERIALIZED (
     SELECT task.id
       FROM ${GIVEN}
       JOIN {schema}.tasks AS task ON ${HELD}
      ORDER BY task.id
        FOR UPDATE OF task SKIP LOCKED
   ), renewed AS (
     UPDATE {schema}.tasks AS task
        SET lease_until = GREATEST(task.lease_until, NOW() + make_interval(secs => $4::float8))
       FROM free
      WHERE task.id = free.id
     RETURNING task.id, task.lease_until
   )
   SELECT given.id::text AS id, renewed.lease_until AS until, task.cancel_reason
     FROM ${GIVEN}
     JOIN {schema}.tasks AS task ON ${HELD}
     LEFT JOIN renewed ON renewed.id = given.id`,
);

export interface Renewal {
  /** Null: the row was locked, the lease stands as it was. */
  readonly until: Date | null;
  readonly cancelReason: string | null;
}

/** By task id. What is missing is no longer held. */
export async function renewLeases(
  db: Queryable,
  tokens: readonly LeaseToken[],
  seconds: number,
): Promise<Map<string, Renewal>> {
  const rows = await db.query<{
    id: string;
    until: Date | null;
    cancel_reason: string | null;
  }>(RENEW, [...tokenValues(tokens), seconds]);
  return new Map(
    rows.map((row) => [row.id, { until: row.until, cancelReason: row.cancel_reason }]),
  );
}

const CANCELLED = statement(
  "tasks_find_cancelled",
  `SELECT given.id::text AS id, task.cancel_reason
     FROM ${GIVEN}
     JOIN {schema}.tasks AS task ON ${HELD}
    WHERE task.cancel_reason IS NOT NULL`,
);

/** Reasons by task id. */
export async function findCancelled(
  db: Queryable,
  tokens: readonly LeaseToken[],
): Promise<Map<string, string>> {
  const rows = await db.query<{ id: string; cancel_reason: string }>(
    CANCELLED,
    tokenValues(tokens),
  );
  return new Map(rows.map((row) => [row.id, row.cancel_reason]));
}

const EXTEND = statement(
  "task_extend",
  `UPDATE {schema}.tasks
      SET lease_until = GREATEST(lease_until, NOW() + make_interval(secs => $4::float8))
    WHERE id = $1 AND lease_generation = $2 AND claim_id = $3
   RETURNING lease_until AS until`,
);

/** Undefined when the lease is lost. */
export async function extendLease(
  db: Queryable,
  { taskId, generation, claimId }: LeaseToken,
  seconds: number,
): Promise<Date | undefined> {
  const values = [taskId, generation, claimId, seconds];
  const [row] = await db.query<{ until: Date }>(EXTEND, values);
  return row?.until;
}

const PROGRESS = statement(
  "task_progress",
  `UPDATE {schema}.tasks
      SET progress = $4::text::jsonb
    WHERE id = $1 AND lease_generation = $2 AND claim_id = $3
   RETURNING id`,
);

export async function saveProgress(
  db: Queryable,
  { taskId, generation, claimId }: LeaseToken,
  json: string,
): Promise<boolean> {
  const rows = await db.query(PROGRESS, [taskId, generation, claimId, json]);
  return rows.length === 1;
}
