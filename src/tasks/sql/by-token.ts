import type { Queryable } from "../../db/database.ts";
import { statement } from "../../db/statement.ts";
import type { LeaseToken, TaskState } from "../task.ts";
import { holdsTask } from "./open-packs.ts";

/** A token and whose it is said to be. */
export interface TenantToken extends LeaseToken {
  readonly tenant: string;
}

// Answers go by place: one claim may be asked for twice.
const GIVEN = `unnest($1::text::bigint[], $2::text::int[], $3::text::uuid[], $4::text[])
          WITH ORDINALITY AS given(id, generation, claim_id, tenant, place)`;

const HELD = `task.id = given.id
        AND task.lease_generation = given.generation
        AND task.claim_id = given.claim_id
        AND task.tenant = given.tenant`;

const valuesOf = (tokens: readonly TenantToken[]): unknown[] => [
  `{${tokens.map((token) => token.taskId).join(",")}}`,
  `{${tokens.map((token) => token.generation).join(",")}}`,
  `{${tokens.map((token) => token.claimId).join(",")}}`,
  tokens.map((token) => token.tenant),
];

const FACTS = `
          given.place::int, task.id::text AS id, task.lane, task.claim_order::text AS claim_order,
          task.attempt, task.lease_generation AS generation, task.claim_id, task.max_attempts,
          task.priority, task.tenant, task.queue, task.kind, task.content_type, task.on_probation,
          task.options::text AS options, task.created_at, task.run_at, task.lease_until AS until,
          date_part('epoch', NOW() - task.claimed_at) AS ran_seconds`;

/** A task that somebody holds, as whoever has its token needs it: without its payload. */
export interface HeldRow {
  readonly place: number;
  readonly id: string;
  readonly lane: number;
  readonly claim_order: string | null;
  readonly attempt: number;
  readonly generation: number;
  readonly claim_id: string;
  readonly max_attempts: number;
  readonly priority: number;
  readonly tenant: string;
  readonly queue: string;
  readonly kind: string | null;
  readonly content_type: string | null;
  readonly on_probation: boolean;
  readonly options: string | null;
  readonly created_at: Date;
  readonly run_at: Date;
  readonly until: Date;
  readonly ran_seconds: number;
}

const FIND = statement(
  "tasks_find_held",
  `SELECT ${FACTS}
     FROM ${GIVEN}
     JOIN {schema}.tasks AS task ON ${HELD}`,
);

/** One for each token, in their order. Undefined: nobody holds a task by it. */
export async function findHeld(
  db: Queryable,
  tokens: readonly TenantToken[],
): Promise<(HeldRow | undefined)[]> {
  return byPlace(tokens, await db.query<HeldRow>(FIND, valuesOf(tokens)));
}

/** No lease lasts longer than the task may take; NULL, which LEAST passes over, for any time. */
const lasts = (seconds: string): string => `LEAST(
              NOW() + make_interval(secs => ${seconds}::float8),
              task.claimed_at + make_interval(secs => COALESCE(
                (task.options ->> 'timeoutSeconds')::float8,
                (SELECT (queue.settings ->> 'timeoutSeconds')::float8
                   FROM {schema}.queues AS queue
                  WHERE queue.name = task.queue))))`;

const locked = (more = ""): string => `
     SELECT task.id, given.place
       FROM ${GIVEN}
       JOIN {schema}.tasks AS task ON ${HELD}${more}
      ORDER BY task.id
        FOR UPDATE OF task`;

// Whoever holds it from now on is compared when leases are ended: who held it before has no say.
const ADOPT = statement(
  "tasks_adopt",
  `WITH held AS MATERIALIZED (${locked()}
   )
   UPDATE {schema}.tasks AS task
      SET leased_by = $5::uuid, lease_until = GREATEST(task.lease_until, ${lasts("$6")})
     FROM held AS given
    WHERE task.id = given.id
   RETURNING ${FACTS}`,
);

/** The worker holds them from now on, under the same claims. Undefined: nobody may. */
export async function adoptTasks(
  db: Queryable,
  tokens: readonly TenantToken[],
  { workerId, seconds }: { readonly workerId: string; readonly seconds: number },
): Promise<(HeldRow | undefined)[]> {
  return byPlace(tokens, await db.query<HeldRow>(ADOPT, [...valuesOf(tokens), workerId, seconds]));
}

// One that was adopted elsewhere is a row; what is in a pack never left.
const KEEP = statement(
  "tasks_keep",
  `WITH held AS MATERIALIZED (${locked(" AND task.leased_by <> $5::uuid")}
   )
   UPDATE {schema}.tasks AS task
      SET leased_by = $5::uuid, lease_until = GREATEST(task.lease_until, ${lasts("$6")})
     FROM held
    WHERE task.id = held.id`,
);

/** The worker holds again what others have adopted from it meanwhile, under the same claims. */
export async function keepTasks(
  db: Queryable,
  tokens: readonly TenantToken[],
  { workerId, seconds }: { readonly workerId: string; readonly seconds: number },
): Promise<void> {
  await db.query(KEEP, [...valuesOf(tokens), workerId, seconds]);
}

// The lease may become shorter than that of the claim: then it is looked at earlier, too.
const HAND_OVER = statement(
  "tasks_hand_over",
  `WITH held AS MATERIALIZED (${locked()}
   ), handed AS (
     UPDATE {schema}.tasks AS task
        SET leased_by = $5::uuid, lease_until = ${lasts("$6")}
       FROM held
      WHERE task.id = held.id
     RETURNING task.claim_id, task.lease_until, held.place
   ), claims AS MATERIALIZED (
     SELECT claim_id
       FROM {schema}.task_claims
      WHERE claim_id IN (SELECT claim_id FROM handed)
      ORDER BY claim_id
        FOR UPDATE
   ), due AS (
     UPDATE {schema}.task_claims AS claim
        SET check_at = LEAST(claim.check_at, (SELECT min(handed.lease_until) FROM handed))
      WHERE claim.claim_id IN (SELECT claim_id FROM claims)
   )
   SELECT place::int, lease_until AS until FROM handed`,
);

/** Somebody outside holds them from now on, for so long. Undefined: the lease is lost. */
export async function handOverTasks(
  db: Queryable,
  tokens: readonly TenantToken[],
  { holder, seconds }: { readonly holder: string; readonly seconds: number },
): Promise<(Date | undefined)[]> {
  const values = [...valuesOf(tokens), holder, seconds];
  const rows = await db.query<{ place: number; until: Date }>(HAND_OVER, values);
  return byPlace(tokens, rows).map((row) => row?.until);
}

const EXTEND = statement(
  "tasks_extend_held",
  `WITH held AS MATERIALIZED (${locked(" AND task.cancel_reason IS NULL")}
   )
   UPDATE {schema}.tasks AS task
      SET lease_until = GREATEST(task.lease_until, ${lasts("$5")})
     FROM held
    WHERE task.id = held.id
   RETURNING held.place::int, task.lease_until AS until,
             date_part('epoch', task.lease_until - NOW()) AS seconds`,
);

/** Until when, and how long. */
export interface HeldUntil {
  readonly place: number;
  readonly until: Date;
  readonly seconds: number;
}

/** One for each token. Undefined: nobody holds it, or it is to be cancelled. */
export async function extendHeld(
  db: Queryable,
  tokens: readonly TenantToken[],
  seconds: number,
): Promise<(HeldUntil | undefined)[]> {
  return byPlace(tokens, await db.query<HeldUntil>(EXTEND, [...valuesOf(tokens), seconds]));
}

// What a claim that is over led to. A task that was put back keeps its generation; whose word that
// was is known of what counted only.
const ENDED = statement(
  "tasks_find_ended_claims",
  `SELECT given.place::int, ended.tenant, ended.state, ended.attempt, NULL::text AS outcome,
          0::float8 AS delay
     FROM ${GIVEN}
     JOIN {schema}.task_history AS ended
       ON ended.id = given.id AND ended.lease_generation = given.generation
      AND ended.claim_id = given.claim_id AND ended.tenant = given.tenant
    UNION ALL
   SELECT given.place::int, dead.tenant, 'dead', dead.attempt, NULL, 0
     FROM ${GIVEN}
     JOIN {schema}.dead_letters AS dead
       ON dead.id = given.id AND dead.lease_generation = given.generation
      AND dead.claim_id = given.claim_id AND dead.tenant = given.tenant
    UNION ALL
   SELECT given.place::int, task.tenant, task.state, task.attempt, failure.outcome,
          GREATEST(0, date_part('epoch', task.run_at - NOW()))
     FROM ${GIVEN}
     JOIN {schema}.tasks AS task
       ON task.id = given.id AND task.lease_generation = given.generation
      AND task.claim_id IS NULL AND task.tenant = given.tenant
     JOIN {schema}.task_failures AS failure
       ON failure.task_id = task.id AND failure.claim_id = given.claim_id`,
);

/** Where a task is whose claim is over. */
export interface EndedClaim {
  readonly place: number;
  readonly state: TaskState;
  readonly attempt: number;
  /** Of a task that was put back by this claim: the outcome of the attempt. */
  readonly outcome: string | null;
  readonly delay: number;
}

interface EndedRow extends EndedClaim {
  readonly tenant: string;
}

/** One for each token, in their order. Undefined: the claim is not over, or nothing tells of it. */
export async function findEndedClaims(
  db: Queryable,
  tokens: readonly TenantToken[],
): Promise<(EndedRow | undefined)[]> {
  return byPlace(tokens, await db.query<EndedRow>(ENDED, valuesOf(tokens)));
}

const CLAIM_OF = statement(
  "task_claim_of",
  `SELECT task.lease_generation AS generation, task.claim_id, task.leased_by
     FROM {schema}.tasks AS task
    WHERE task.id = $1 AND task.tenant = $2 AND task.claim_id IS NOT NULL`,
);

/** Of a row only: who holds the task, and by which claim. Undefined: nobody does. */
export async function findClaimOf(
  db: Queryable,
  taskId: string,
  tenant: string,
): Promise<{ generation: number; claim_id: string; leased_by: string } | undefined> {
  const [row] = await db.query<{ generation: number; claim_id: string; leased_by: string }>(
    CLAIM_OF,
    [taskId, tenant],
  );
  return row;
}

// Each is in one of the four: what moves meanwhile was where this statement saw it.
const WHEREABOUTS = statement(
  "tasks_whereabouts",
  `SELECT given.id::text AS id,
          EXISTS (SELECT FROM {schema}.tasks AS task
                   WHERE task.id = given.id AND task.tenant = $2)
          OR EXISTS (SELECT FROM {schema}.task_packs AS pack
                      WHERE ${holdsTask("given.id")} AND pack.tenant = $2) AS is_live,
          EXISTS (SELECT FROM {schema}.task_history AS ended
                   WHERE ended.id = given.id AND ended.tenant = $2)
          OR EXISTS (SELECT FROM {schema}.dead_letters AS dead
                      WHERE dead.id = given.id AND dead.tenant = $2) AS is_over
     FROM unnest($1::text::bigint[]) AS given(id)`,
);

/** Of those that the tenant has: whether they have ended. */
export async function findWhereabouts(
  db: Queryable,
  ids: readonly string[],
  tenant: string,
): Promise<Map<string, "live" | "over">> {
  const rows = await db.query<{ id: string; is_live: boolean; is_over: boolean }>(WHEREABOUTS, [
    `{${ids.join(",")}}`,
    tenant,
  ]);
  const found = new Map<string, "live" | "over">();
  for (const { id, is_live, is_over } of rows) {
    if (is_live) found.set(id, "live");
    else if (is_over) found.set(id, "over");
  }
  return found;
}

function byPlace<Row extends { readonly place: number }>(
  tokens: readonly TenantToken[],
  rows: readonly Row[],
): (Row | undefined)[] {
  const found: (Row | undefined)[] = tokens.map(() => undefined);
  for (const row of rows) found[row.place - 1] = row;
  return found;
}
