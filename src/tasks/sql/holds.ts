import type { Queryable } from "../../db/database.ts";
import { statement } from "../../db/statement.ts";

// A hold names the first task of its key. When that is gone, and another one is on probation, or
// when one is before it, the hold names the first that there is now; when no reason is left the key
// flows again. A pause that has run out ends here, too. Whether one is on probation is asked only
// when it matters: the answer no costs a walk over all that waits in the lane.
const ADVANCE = statement(
  "key_holds_advance",
  `WITH head AS MATERIALIZED (
     SELECT hold.key_space_id, hold.tenant, hold.partition_key, hold.lane, hold.why, hold.until,
            hold.task_id,
            (SELECT task.id
               FROM {schema}.tasks AS task
              WHERE task.lane = hold.lane
                AND task.claim_order > 0
                AND task.tenant = hold.tenant
                AND task.partition_key = hold.partition_key
              ORDER BY task.claim_order
              LIMIT 1) AS first_id,
            EXISTS (SELECT FROM {schema}.tasks AS task WHERE task.id = hold.task_id) AS is_there
       FROM {schema}.key_holds AS hold
      WHERE hold.key_space_id = $1
        AND hold.lane = ANY ($2::text::int[])
        AND hold.why IN ('retry', 'probation', 'paused')
   ), stale AS MATERIALIZED (
     SELECT head.key_space_id, head.tenant, head.partition_key, head.lane, head.why,
            CASE WHEN head.why = 'paused' THEN NULL
                 WHEN head.is_there THEN head.first_id
                 WHEN EXISTS (SELECT FROM {schema}.tasks AS task
                               WHERE task.lane = head.lane
                                 AND task.claim_order > 0
                                 AND task.tenant = head.tenant
                                 AND task.partition_key = head.partition_key
                                 AND task.on_probation)
                 THEN head.first_id END AS next_id
       FROM head
       JOIN {schema}.key_holds AS hold
         ON (hold.key_space_id, hold.tenant, hold.partition_key, hold.why)
          = (head.key_space_id, head.tenant, head.partition_key, head.why)
      WHERE hold.task_id IS NOT DISTINCT FROM head.task_id
        AND ((head.why = 'paused' AND head.until <= NOW())
             OR (head.why <> 'paused' AND head.first_id IS DISTINCT FROM head.task_id))
        FOR UPDATE OF hold SKIP LOCKED
   ), moved AS (
     UPDATE {schema}.key_holds AS hold
        SET task_id = stale.next_id, until = NOW()
       FROM stale
      WHERE (hold.key_space_id, hold.tenant, hold.partition_key, hold.why)
          = (stale.key_space_id, stale.tenant, stale.partition_key, stale.why)
        AND stale.next_id IS NOT NULL
     RETURNING hold.lane
   ), ended AS (
     DELETE FROM {schema}.key_holds AS hold
      USING stale
      WHERE (hold.key_space_id, hold.tenant, hold.partition_key, hold.why)
          = (stale.key_space_id, stale.tenant, stale.partition_key, stale.why)
        AND stale.next_id IS NULL
     RETURNING hold.lane
   )
   SELECT lane FROM ended`,
);

/** The lanes in which a key flows again: what waits there may be below the floor. */
export async function advanceHolds(
  db: Queryable,
  keySpaceId: number,
  lanes: readonly number[],
): Promise<number[]> {
  const rows = await db.query<{ lane: number }>(ADVANCE, [keySpaceId, `{${lanes.join(",")}}`]);
  return rows.map((row) => row.lane);
}

const NEXT_HOLD = statement(
  "key_holds_next",
  `SELECT count(*)::int AS holds,
          extract(epoch FROM min(until) - NOW())::float8 AS due_in
     FROM {schema}.key_holds
    WHERE key_space_id = $1
      AND lane = ANY ($2::text::int[])
      AND tenant || chr(31) || partition_key <> ALL ($3::text[])
      AND until IS NOT NULL`,
);

/**
 * Seconds until the first hold of these lanes is due; Infinity when none will be.
 *
 * @param exceptKeys tenant and key, with a FIELD between
 */
export async function nextHoldSeconds(
  db: Queryable,
  keySpaceId: number,
  lanes: readonly number[],
  exceptKeys: readonly string[],
): Promise<number> {
  const values = [keySpaceId, `{${lanes.join(",")}}`, [...exceptKeys]];
  const [row] = await db.query<{ due_in: number | null }>(NEXT_HOLD, values);
  return row?.due_in ?? Infinity;
}
