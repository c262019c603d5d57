import type { Queryable } from "../../db/database.ts";
import { statement } from "../../db/statement.ts";
import type { Limits } from "../limits.ts";
import { KEYED_HEADS } from "./keyed-heads.ts";
import { packOrder, packsBehind, rowOrder, rowsBehind } from "./pack-lane.ts";

// Every claim has the row locked FOR KEY SHARE: this waits for those that did not see the pause.
const PAUSE = statement(
  "queue_pause",
  `WITH held AS MATERIALIZED (
     SELECT name FROM {schema}.queues WHERE name = $1 FOR UPDATE
   )
   UPDATE {schema}.queues AS queue
      SET paused_at = COALESCE(queue.paused_at, NOW()), pause_reason = $2
     FROM held
    WHERE queue.name = held.name
   RETURNING queue.name`,
);

export async function pauseQueue(
  db: Queryable,
  name: string,
  reason: string | null,
): Promise<boolean> {
  return (await db.query(PAUSE, [name, reason])).length === 1;
}

const RESUME = statement(
  "queue_resume",
  `UPDATE {schema}.queues
      SET paused_at = NULL, pause_reason = NULL
    WHERE name = $1
   RETURNING name`,
);

export async function resumeQueue(db: Queryable, name: string): Promise<boolean> {
  return (await db.query(RESUME, [name])).length === 1;
}

// Merged here: two people who change different limits at once both have their way.
const SET_LIMITS = statement(
  "queue_limits_set",
  `UPDATE {schema}.queues
      SET limits_set = limits_set || $2::text::jsonb, updated_at = NOW()
    WHERE name = $1
   RETURNING name`,
);

export async function setLimits(
  db: Queryable,
  name: string,
  changes: Partial<Limits>,
): Promise<boolean> {
  return (await db.query(SET_LIMITS, [name, JSON.stringify(changes)])).length === 1;
}

const RESET_LIMITS = statement(
  "queue_limits_reset",
  `UPDATE {schema}.queues
      SET limits_set = '{}', updated_at = NOW()
    WHERE name = $1
   RETURNING name`,
);

export async function resetLimits(db: Queryable, name: string): Promise<boolean> {
  return (await db.query(RESET_LIMITS, [name])).length === 1;
}

// Depths are sums of what was written; running tasks are found through the ledger, each by its id.
// Of what is pending nothing is read but the heads of lanes. Dead letters are counted along the
// index of their queue, up to so many of each: a desk of a million costs no more. Their queue is
// compared as a range, because then nothing but that index can give the order (pack-lane.ts).
const COUNTS = statement(
  "queue_counts",
  `WITH RECURSIVE depth AS (
     SELECT queue, priority, sum(amount) AS amount
       FROM (SELECT queue, priority, depth AS amount FROM {schema}.task_depths
              UNION ALL
             SELECT queue, priority, amount FROM {schema}.task_tally) AS one
      GROUP BY queue, priority
   ), running AS (
     SELECT held.queue, sum(held.count) AS count
       FROM (SELECT task.queue, count(*) AS count
               FROM {schema}.task_claims AS claim
              CROSS JOIN LATERAL unnest(claim.task_ids) AS one(id)
              CROSS JOIN LATERAL (
                SELECT live.queue
                  FROM {schema}.tasks AS live
                 WHERE live.id = one.id AND live.claim_id = claim.claim_id
                OFFSET 0) AS task
              GROUP BY task.queue
              UNION ALL
             SELECT pack.queue, sum(cardinality(pack.ids))
               FROM {schema}.task_claims AS claim
              CROSS JOIN LATERAL unnest(claim.pack_ids) AS one(id)
              CROSS JOIN LATERAL (
                SELECT live.queue, live.ids
                  FROM {schema}.task_packs AS live
                 WHERE live.id = one.id AND live.claim_id = claim.claim_id
                OFFSET 0) AS pack
              GROUP BY pack.queue) AS held
      GROUP BY held.queue
   ), dead AS (
     SELECT known.name AS queue, held.count
       FROM {schema}.queues AS known
      CROSS JOIN LATERAL (
        SELECT count(*) AS count
          FROM (SELECT FROM {schema}.dead_letters AS letter
                 WHERE letter.queue >= known.name AND letter.queue <= known.name
                 ORDER BY letter.queue, letter.id
                 LIMIT $1) AS one
      ) AS held
   ),${KEYED_HEADS}, unkeyed_head AS (
     SELECT line.queue, head.run_at
       FROM {schema}.task_lanes AS line
      CROSS JOIN LATERAL (
        (SELECT ready.run_at
           FROM {schema}.tasks AS ready
          WHERE ${rowsBehind("ready", "line.lane", "0")}
            AND ready.state = 'pending'
          ORDER BY ${rowOrder("ready")}
          LIMIT 1)
         UNION ALL
        (SELECT ready.created_at
           FROM {schema}.task_packs AS ready
          WHERE ${packsBehind("ready", "line.lane", "0")}
            AND ready.claim_id IS NULL
          ORDER BY ${packOrder("ready")}
          LIMIT 1)
      ) AS head
   ), oldest AS (
     SELECT head.queue, min(head.run_at) AS run_at
       FROM (TABLE keyed_head UNION ALL TABLE unkeyed_head) AS head
      GROUP BY head.queue
   )
   SELECT queue.name,
          COALESCE((SELECT json_object_agg(depth.priority, depth.amount)
                      FROM depth
                     WHERE depth.queue = queue.name AND depth.amount > 0), '{}') AS depths,
          COALESCE(running.count, 0)::int AS running,
          COALESCE(dead.count, 0)::int AS dead,
          extract(epoch FROM NOW() - oldest.run_at)::float8 AS oldest_seconds
     FROM {schema}.queues AS queue
     LEFT JOIN running ON running.queue = queue.name
     LEFT JOIN dead ON dead.queue = queue.name
     LEFT JOIN oldest ON oldest.queue = queue.name`,
);

export interface QueueCounts {
  readonly name: string;
  /** Live tasks by priority, running ones included. */
  readonly depths: Readonly<Record<string, number>>;
  readonly running: number;
  readonly dead: number;
  /** Null: none waits. */
  readonly oldest_seconds: number | null;
}

/** Dead letters of each queue are counted up to so many. */
export async function readQueueCounts(db: Queryable, deadMax: number): Promise<QueueCounts[]> {
  return await db.query<QueueCounts>(COUNTS, [deadMax]);
}

// The index of those that wait for their time is as long as they are many.
const SCHEDULED = statement(
  "queue_scheduled",
  `SELECT count(*)::int AS count
     FROM (SELECT FROM {schema}.tasks
            WHERE claim_order IS NULL AND queue = $1
            LIMIT $2) AS counted`,
);

/** Tasks that wait for their time, counted up to so many. */
export async function countScheduled(db: Queryable, queue: string, max: number): Promise<number> {
  const [row] = await db.query<{ count: number }>(SCHEDULED, [queue, max]);
  return row?.count ?? 0;
}

const PAUSE_KEY = statement(
  "key_pause",
  `INSERT INTO {schema}.key_holds AS hold
          (key_space_id, tenant, partition_key, lane, why, until, reason)
   VALUES ($1, $2, $3, $4, 'paused', $5::timestamptz, $6)
       ON CONFLICT (key_space_id, tenant, partition_key, why) DO UPDATE
      SET until = excluded.until, reason = excluded.reason`,
);

export interface KeyPause {
  readonly keySpaceId: number;
  readonly tenant: string;
  readonly key: string;
  readonly lane: number;
  readonly until: Date | null;
  readonly reason: string | null;
}

export async function pauseKey(db: Queryable, pause: KeyPause): Promise<void> {
  const { keySpaceId, tenant, key, lane, until, reason } = pause;
  await db.query(PAUSE_KEY, [keySpaceId, tenant, key, lane, until?.toISOString() ?? null, reason]);
}

const RESUME_KEY = statement(
  "key_resume",
  `DELETE FROM {schema}.key_holds
    WHERE key_space_id = $1 AND tenant = $2 AND partition_key = $3 AND why = 'paused'
   RETURNING why`,
);

export async function resumeKey(
  db: Queryable,
  keySpaceId: number,
  tenant: string,
  key: string,
): Promise<boolean> {
  return (await db.query(RESUME_KEY, [keySpaceId, tenant, key])).length === 1;
}

const STOPPED_KEYS = statement(
  "keys_stopped",
  `SELECT lane, tenant, partition_key
     FROM {schema}.key_holds
    WHERE why IN ('paused', 'parked')
      AND (until IS NULL OR until > NOW())
      AND lane = ANY ($1::text::int[])`,
);

/** Keys of these lanes that a person, a handler or a death stopped. */
export async function readStoppedKeys(
  db: Queryable,
  lanes: readonly number[],
): Promise<{ lane: number; tenant: string; partition_key: string }[]> {
  return await db.query(STOPPED_KEYS, [`{${lanes.join(",")}}`]);
}
