import type { Queryable } from "../../db/database.ts";
import { statement } from "../../db/statement.ts";
import type { Rate } from "../limits.ts";
import { holdsTask } from "./open-packs.ts";
import { packsBefore } from "./pack-lane.ts";

/** Where the task stands in its lane. */
const PLACE = "COALESCE(task.claim_order, task.id)";

// The task's own attempts, and the last ones of those before it. History has no index of keys: no
// more than so many numbers below its own are looked at.
const STARTS_OF_KEY = `
               SELECT failure.at
                 FROM {schema}.task_failures AS failure
                WHERE by_key.seconds IS NOT NULL
                  AND failure.task_id = task.id
                UNION ALL
               SELECT ended.claimed_at
                 FROM {schema}.task_history AS ended
                WHERE by_key.seconds IS NOT NULL
                  AND ended.id BETWEEN task.id - 10000 AND task.id
                  AND ended.queue = ANY (by_key.queues)
                  AND ended.tenant = task.tenant
                  AND ended.partition_key = task.partition_key
                UNION ALL
               SELECT dead.claimed_at
                 FROM {schema}.dead_letters AS dead
                WHERE by_key.seconds IS NOT NULL
                  AND dead.id BETWEEN task.id - 10000 AND task.id
                  AND dead.queue = ANY (by_key.queues)
                  AND dead.tenant = task.tenant
                  AND dead.partition_key = task.partition_key`;

// Everything that may keep one task from running, in one snapshot.
const WHY = statement(
  "task_why",
  `SELECT task.state, task.queue, task.tenant, task.partition_key, task.attempt,
          task.leased_by, task.lease_until, task.run_at, task.on_probation, task.cancel_reason,
          task.run_at > NOW() AS is_early,
          queue.paused_at, queue.pause_reason, queue.limits,
          space.name AS key_space,
          (SELECT json_agg(json_build_object('why', hold.why, 'until', hold.until,
                                             'task', hold.task_id::text, 'reason', hold.reason))
             FROM {schema}.key_holds AS hold
            WHERE hold.key_space_id = task.key_space_id
              AND hold.tenant = task.tenant
              AND hold.partition_key = task.partition_key) AS holds,
          (SELECT json_build_object('id', before.id::text, 'state', before.state,
                                    'worker', before.leased_by)
             FROM {schema}.tasks AS before
            WHERE task.partition_key IS NOT NULL
              AND before.lane = task.lane
              AND before.claim_order < task.claim_order
              AND before.tenant = task.tenant
              AND before.partition_key = task.partition_key
            ORDER BY before.claim_order
            LIMIT 1) AS before,
          owner.worker_id AS owner, owner.updated_at AS owned_since,
          (SELECT count(*)::int
             FROM {schema}.worker_info AS info
             JOIN {worker_nodes} AS node ON node.worker_id = info.worker_id
            WHERE info.status = 'active'
              AND node.heartbeat_at >= NOW() - INTERVAL '1 minute'
              AND (task.queue = ANY (info.queues) OR EXISTS (
                     SELECT FROM {schema}.worker_tenants AS served
                      WHERE served.worker_id = info.worker_id
                        AND served.tenant = task.tenant
                        AND task.queue = ANY (served.queues)))) AS workers,
          (SELECT granted FROM {schema}.limit_slots AS slots
            WHERE slots.queue = task.queue) AS granted,
          (SELECT max(LEAST(used.until, NOW())) + make_interval(secs => rate.seconds)
             FROM (SELECT starts.until,
                          sum(starts.count) OVER (ORDER BY starts.until DESC) AS count
                     FROM {schema}.limit_starts AS starts
                    WHERE starts.queue = task.queue
                      AND starts.until > NOW() - make_interval(secs => rate.seconds)) AS used
            WHERE used.count >= rate.count) AS rate_until,
          by_key.rates AS key_rates,
          (SELECT json_agg(start.at ORDER BY start.at DESC)
             FROM (${STARTS_OF_KEY}) AS start
            WHERE start.at > NOW() - make_interval(secs => by_key.seconds)) AS key_starts,
          NOW() AS asked_at,
          (SELECT count(*)::int
             FROM (SELECT 1
                     FROM {schema}.tasks AS ahead
                    WHERE ahead.lane = task.lane
                      AND ahead.claim_order < ${PLACE}
                      AND ahead.state = 'pending'
                    UNION ALL
                   SELECT 1
                     FROM {schema}.task_packs AS ahead
                    CROSS JOIN LATERAL unnest(ahead.ids)
                    WHERE ${packsBefore("ahead", "task.pack_lane", PLACE)}
                      AND (ahead.buckets IS NULL OR task.partition_bucket = ANY (ahead.buckets))
                      AND ahead.claim_id IS NULL
                    LIMIT 1000) AS capped) AS ahead
     FROM (SELECT id, state, queue, tenant, partition_key, partition_bucket, lane,
                  CASE WHEN lane < 0 THEN (-lane - 1) / 360 END AS key_space_id,
                  CASE WHEN lane > 0 THEN lane
                       ELSE (lane + partition_bucket + 1) / 360 - 1 END AS pack_lane, claim_order,
                  attempt, leased_by, lease_until, run_at, on_probation, cancel_reason
             FROM {schema}.tasks
            WHERE id = $1
            UNION ALL
           SELECT one.id, CASE WHEN claim_id IS NULL THEN 'pending' ELSE 'running' END, queue,
                  tenant, one.key, one.bucket,
                  CASE WHEN lane > 0 THEN lane ELSE (lane + 1) * 360 - one.bucket - 1 END,
                  CASE WHEN lane < 0 THEN -lane - 1 END, lane, one.id,
                  (claim_id IS NOT NULL)::int, leased_by, lease_until, created_at, FALSE, NULL
             FROM {schema}.task_packs AS pack
            CROSS JOIN LATERAL unnest(ids, string_to_array(keys, chr(30)), buckets)
                       AS one(id, key, bucket)
            WHERE ${holdsTask("$1::bigint")}
              AND one.id = $1) AS task
     JOIN {schema}.queues AS queue ON queue.name = task.queue
     JOIN {schema}.key_spaces AS space ON space.id = queue.key_space_id
     LEFT JOIN {schema}.bucket_owners AS owner
       ON owner.key_space_id = task.key_space_id AND task.partition_bucket = ANY (owner.buckets)
    CROSS JOIN LATERAL (
      SELECT (queue.limits -> 'rate' ->> 'count')::int AS count,
             (queue.limits -> 'rate' ->> 'seconds')::float8 AS seconds
    ) AS rate
    CROSS JOIN LATERAL (
      SELECT array_agg(other.name) AS queues,
             max((other.limits -> 'keyRate' ->> 'seconds')::float8) AS seconds,
             jsonb_agg(DISTINCT other.limits -> 'keyRate')
               FILTER (WHERE other.limits ->> 'keyRate' IS NOT NULL) AS rates
        FROM {schema}.queues AS other
       WHERE task.partition_key IS NOT NULL
         AND other.key_space_id = queue.key_space_id
    ) AS by_key
    WHERE $2::text IS NULL OR task.tenant = $2`,
);

export interface WhyFacts {
  readonly state: "scheduled" | "pending" | "running";
  readonly queue: string;
  readonly tenant: string;
  readonly partition_key: string | null;
  readonly attempt: number;
  readonly leased_by: string | null;
  readonly lease_until: Date | null;
  readonly run_at: Date;
  readonly on_probation: boolean;
  readonly cancel_reason: string | null;
  readonly is_early: boolean;
  readonly paused_at: Date | null;
  readonly pause_reason: string | null;
  readonly limits: {
    readonly concurrency: number | null;
    readonly rate: Rate | null;
  };
  readonly key_space: string;
  readonly holds: readonly HoldFact[] | null;
  readonly before: {
    readonly id: string;
    readonly state: string;
    readonly worker: string | null;
  } | null;
  readonly owner: string | null;
  readonly owned_since: Date | null;
  readonly workers: number;
  readonly granted: number | null;
  /** When the rate of the queue allows another start. Null: it does, or there is none. */
  readonly rate_until: Date | null;
  /** Of all queues that share the key. */
  readonly key_rates: readonly Rate[] | null;
  /** Newest first. */
  readonly key_starts: readonly string[] | null;
  readonly asked_at: Date;
  /** At most 1000. */
  readonly ahead: number;
}

export interface HoldFact {
  readonly why: "retry" | "probation" | "paused" | "parked";
  readonly until: string | null;
  readonly task: string | null;
  readonly reason: string | null;
}

/** Undefined when the task is not live. */
export async function readWhy(
  db: Queryable,
  id: string,
  tenant?: string,
): Promise<WhyFacts | undefined> {
  const [row] = await db.query<WhyFacts>(WHY, [id, tenant ?? null]);
  return row;
}
