import type { Queryable } from "../../db/database.ts";
import { statement } from "../../db/statement.ts";
import { tell } from "./feed.ts";

const DUE = statement(
  "claims_due",
  `SELECT claim_id
     FROM {schema}.task_claims
    WHERE check_at <= NOW()
    ORDER BY check_at
    LIMIT $1
      FOR UPDATE SKIP LOCKED`,
);

/** Claims whose first lease has ended, locked so that two reapers share them. */
export async function lockDueClaims(tx: Queryable, max: number): Promise<string[]> {
  const rows = await tx.query<{ claim_id: string }>(DUE, [max]);
  return rows.map((row) => row.claim_id);
}

// Found through the ledger, each by its id, so that what is pending costs nothing: a subquery that
// locks is never joined in another way. A row that its holder has locked is not reaped: its
// transaction is about to say how the task ended.
const LOST = statement(
  "tasks_lost",
  `SELECT task.id::text AS id, task.lease_generation AS generation, task.claim_id,
          task.leased_by, task.attempt, task.max_attempts, task.losses, task.on_probation,
          task.partition_key IS NOT NULL AS is_keyed, task.cancel_reason,
          COALESCE((queue.settings ->> 'maxLosses')::int, 3) AS max_losses,
          COALESCE(queue.settings ->> 'onFailure', 'continue') = 'park' AS parks
     FROM (SELECT claim.claim_id, one.id
             FROM {schema}.task_claims AS claim
            CROSS JOIN LATERAL unnest(claim.task_ids) AS one(id)
            WHERE claim.claim_id = ANY ($1::text::uuid[])
            ORDER BY one.id) AS held
    CROSS JOIN LATERAL (
      SELECT *
        FROM {schema}.tasks AS live
       WHERE live.id = held.id
         AND live.claim_id = held.claim_id
         AND live.lease_until <= NOW()
         FOR UPDATE SKIP LOCKED
    ) AS task
     JOIN {schema}.queues AS queue ON queue.name = task.queue`,
);

export interface LostTask {
  readonly id: string;
  readonly generation: number;
  readonly claim_id: string;
  readonly leased_by: string;
  readonly attempt: number;
  readonly max_attempts: number;
  readonly losses: number;
  readonly on_probation: boolean;
  readonly is_keyed: boolean;
  readonly cancel_reason: string | null;
  readonly max_losses: number;
  readonly parks: boolean;
}

export async function lockLostTasks(
  tx: Queryable,
  claimIds: readonly string[],
): Promise<LostTask[]> {
  return await tx.query<LostTask>(LOST, [`{${claimIds.join(",")}}`]);
}

// A lost task comes back to be claimed alone. An unkeyed one goes to the probation lane of its
// queue, a keyed one keeps its order and a hold keeps those of its key behind it. Leases of one key
// may end in any order, because some were renewed: the hold names the first of the tasks, not the
// first that was lost.
const PROBATION = statement(
  "tasks_on_probation",
  `WITH lost AS MATERIALIZED (
     SELECT task.id, task.claim_order, task.lane, task.tenant, task.queue, task.partition_key,
            task.attempt, task.leased_by
       FROM {schema}.tasks AS task
      WHERE task.id = ANY ($1::text::bigint[])
      ORDER BY task.id
        FOR UPDATE
   ), back AS (
     UPDATE {schema}.tasks AS task
        SET state = 'pending',
            losses = task.losses + CASE WHEN task.on_probation THEN 1 ELSE 0 END,
            on_probation = TRUE,
            lane = CASE WHEN lost.partition_key IS NULL
                        THEN (SELECT line.lane FROM {schema}.task_lanes AS line
                               WHERE line.queue = lost.queue AND line.tenant = lost.tenant
                                 AND line.priority = -1)
                        ELSE task.lane END,
            claim_order = CASE WHEN lost.partition_key IS NULL
                               THEN nextval('{schema}.task_numbers') ELSE task.claim_order END,
            claim_id = NULL, leased_by = NULL, claimed_at = NULL, lease_until = NULL,
            progress = NULL
       FROM lost
      WHERE task.id = lost.id
   ), failures AS (
     INSERT INTO {schema}.task_failures (task_id, attempt, outcome, reason, worker_id)
     SELECT id, attempt, 'lost', 'its worker stopped renewing the lease', leased_by FROM lost
   ),${tell({
     rows: "lost",
     state: "'pending'",
     worker: "leased_by",
     reason: "'its worker stopped renewing the lease'",
   })}
   INSERT INTO {schema}.key_holds AS hold
          (key_space_id, tenant, partition_key, lane, why, until, task_id, reason)
   SELECT DISTINCT ON (lane, tenant, partition_key)
          (-lane - 1) / 360, tenant, partition_key, lane, 'probation', NOW(), id,
          'its worker was lost'
     FROM lost
    WHERE partition_key IS NOT NULL
    ORDER BY lane, tenant, partition_key, claim_order
       ON CONFLICT (key_space_id, tenant, partition_key, why) DO UPDATE
      SET task_id = COALESCE((SELECT task.id
                                FROM {schema}.tasks AS task
                               WHERE task.id IN (hold.task_id, excluded.task_id)
                               ORDER BY task.claim_order
                               LIMIT 1), excluded.task_id)`,
);

/** The rows were locked by {@link lockLostTasks} in this transaction. */
export async function putOnProbation(tx: Queryable, ids: readonly string[]): Promise<void> {
  await tx.query(PROBATION, [`{${ids.join(",")}}`]);
}

// A claim leaves the ledger when none of its tasks is held any more; otherwise it is looked at
// again when the next of its leases ends, or soon when a row was locked. OFFSET 0 keeps the planner
// from reading all tasks at once.
const FORGET = statement(
  "claims_forget",
  `WITH due AS MATERIALIZED (
     SELECT claim.claim_id,
            LEAST(
              (SELECT min(task.lease_until)
                 FROM unnest(claim.task_ids) AS one(id)
                CROSS JOIN LATERAL (
                  SELECT live.lease_until
                    FROM {schema}.tasks AS live
                   WHERE live.id = one.id AND live.claim_id = claim.claim_id
                  OFFSET 0
                ) AS task),
              (SELECT min(pack.lease_until)
                 FROM {schema}.task_packs AS pack
                WHERE pack.id = ANY (claim.pack_ids) AND pack.claim_id = claim.claim_id)
            ) AS next_at
       FROM {schema}.task_claims AS claim
      WHERE claim.claim_id = ANY ($1::text::uuid[])
   ), gone AS (
     DELETE FROM {schema}.task_claims AS claim
      USING due
      WHERE claim.claim_id = due.claim_id AND due.next_at IS NULL
   )
   UPDATE {schema}.task_claims AS claim
      SET check_at = GREATEST(due.next_at, NOW() + INTERVAL '1 second')
     FROM due
    WHERE claim.claim_id = due.claim_id AND due.next_at IS NOT NULL`,
);

export async function forgetClaims(tx: Queryable, claimIds: readonly string[]): Promise<void> {
  await tx.query(FORGET, [`{${claimIds.join(",")}}`]);
}
