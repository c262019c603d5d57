import type { Queryable } from "../../db/database.ts";
import { statement } from "../../db/statement.ts";
import type { LeaseToken } from "../task.ts";
import { holdsTask } from "./open-packs.ts";

// Answers go by place: a worker may hold a task under two claims, before it hears that it lost one.
const GIVEN = `unnest($1::text::bigint[], $2::text::int[], $3::text::uuid[])
          WITH ORDINALITY AS given(id, generation, claim_id, place)`;

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
   SELECT given.place::int, renewed.lease_until AS until, task.cancel_reason
     FROM ${GIVEN}
     JOIN {schema}.tasks AS task ON ${HELD}
     LEFT JOIN renewed ON renewed.id = given.id`,
);

export interface Renewal {
  /** Null: the row was locked, the lease stands as it was. */
  readonly until: Date | null;
  readonly cancelReason: string | null;
}

/** One for each token, in their order. Undefined: it is no longer held. */
export async function renewLeases(
  db: Queryable,
  tokens: readonly LeaseToken[],
  seconds: number,
): Promise<(Renewal | undefined)[]> {
  const rows = await db.query<{
    place: number;
    until: Date | null;
    cancel_reason: string | null;
  }>(RENEW, [...tokenValues(tokens), seconds]);
  const renewals: (Renewal | undefined)[] = tokens.map(() => undefined);
  for (const { place, until, cancel_reason } of rows) {
    renewals[place - 1] = { until, cancelReason: cancel_reason };
  }
  return renewals;
}

const CANCELLED = statement(
  "tasks_find_cancelled",
  `SELECT given.place::int, task.cancel_reason
     FROM ${GIVEN}
     JOIN {schema}.tasks AS task ON ${HELD}
    WHERE task.cancel_reason IS NOT NULL`,
);

/** The reason for each token that is to be cancelled, by its place. */
export async function findCancelled(
  db: Queryable,
  tokens: readonly LeaseToken[],
): Promise<Map<number, string>> {
  const rows = await db.query<{ place: number; cancel_reason: string }>(
    CANCELLED,
    tokenValues(tokens),
  );
  return new Map(rows.map((row) => [row.place - 1, row.cancel_reason]));
}

// A pack that is closed is under one claim, of the first generation, and with whoever claimed it.
const standing = (more = ""): string => `SELECT given.place::int
     FROM ${GIVEN}
    WHERE EXISTS (
            SELECT FROM {schema}.tasks AS task WHERE ${HELD}${more})
       OR given.generation = 1 AND EXISTS (
            SELECT FROM {schema}.task_packs AS pack
             WHERE ${holdsTask("given.id")} AND pack.claim_id = given.claim_id)`;

const STANDING = statement("tasks_find_standing", standing());

/** Places of the tokens by which somebody, whoever it is, holds a task. */
export async function findStanding(
  db: Queryable,
  tokens: readonly LeaseToken[],
): Promise<Set<number>> {
  const rows = await db.query<{ place: number }>(STANDING, tokenValues(tokens));
  return new Set(rows.map(({ place }) => place - 1));
}

const OWN = statement("tasks_find_own", standing(" AND task.leased_by = $4::uuid"));

/** Places of the tokens by which the worker, and nobody else by now, holds a task. */
export async function findOwn(
  db: Queryable,
  tokens: readonly LeaseToken[],
  workerId: string,
): Promise<Set<number>> {
  const rows = await db.query<{ place: number }>(OWN, [...tokenValues(tokens), workerId]);
  return new Set(rows.map(({ place }) => place - 1));
}

// Whoever has a row locked is about to say how its task ended, and what somebody else holds by now,
// under the same claim, is theirs.
const LAPSE = statement(
  "tasks_lapse",
  `WITH free AS MATERIALIZED (
     SELECT task.id, task.claim_id
       FROM ${GIVEN}
       JOIN {schema}.tasks AS task ON ${HELD}
      WHERE task.leased_by = $4::uuid
      ORDER BY task.id
        FOR UPDATE OF task SKIP LOCKED
   ), lapsed AS (
     UPDATE {schema}.tasks AS task
        SET lease_until = NOW()
       FROM free
      WHERE task.id = free.id
     RETURNING task.id
   ), claims AS MATERIALIZED (
     SELECT claim_id
       FROM {schema}.task_claims
      WHERE claim_id IN (SELECT claim_id FROM free)
      ORDER BY claim_id
        FOR UPDATE
   ), due AS (
     UPDATE {schema}.task_claims
        SET check_at = NOW()
      WHERE claim_id IN (SELECT claim_id FROM claims)
   )
   SELECT id::text AS id FROM lapsed`,
);

/**
 * Ends the worker's leases now: the leader takes the tasks as from a worker that was lost. Returns
 * how many.
 */
export async function lapseLeases(
  db: Queryable,
  tokens: readonly LeaseToken[],
  workerId: string,
): Promise<number> {
  return (await db.query(LAPSE, [...tokenValues(tokens), workerId])).length;
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
