import type { Queryable } from "../../../db/database.ts";
import { statement } from "../../../db/statement.ts";
import { packOrder, packsBehind } from "../../../tasks/sql/pack-lane.ts";

/** A queue as far as one tenant is concerned. */
export interface Place {
  readonly tenant: string;
  readonly queue: string;
}

const QUEUES = statement(
  "tenant_queues",
  `SELECT one.tenant, line.queue
     FROM unnest($1::text[]) AS one(tenant)
    CROSS JOIN LATERAL (
      SELECT DISTINCT lane.queue FROM {schema}.task_lanes AS lane WHERE lane.tenant = one.tenant
    ) AS line
    UNION
   SELECT one.tenant, queue.name
     FROM unnest($1::text[]) AS one(tenant)
    CROSS JOIN {schema}.queues AS queue
    WHERE one.tenant = 'default'
       OR EXISTS (SELECT FROM {schema}.key_spaces AS space
                   WHERE space.base_id = queue.key_space_id AND space.tenant = one.tenant)`,
);

/** Every queue in which these tenants have, had or may have tasks. */
export async function readTenantQueues(
  db: Queryable,
  tenants: readonly string[],
): Promise<Place[]> {
  return await db.query<Place>(QUEUES, [[...tenants]]);
}

/** Of keyed tasks, which share lanes with other queues, no more than so many are looked at. */
const KEYED_MAX = 200;
const PACKS_MAX = 10;

// Each place by a few steps into the indexes by which workers claim, from its floor on: what was
// done since the last vacuum is not walked through again and again. A lane of tasks with keys may
// hold those of other queues, and of keys that are held: where the first so many are of that sort,
// work is assumed, because a notice too many costs a claim that finds nothing. Nothing here writes,
// or waits for a lock.
const LOOK = statement(
  "work_look",
  `SELECT place.at::int AS at,
          LEAST($4::int, COALESCE(rows.count, 0) + COALESCE(packs.count, 0)
                         + COALESCE(keyed.count, 0)
                         + COALESCE(keyed_packs.count, 0))::int AS waiting,
          LEAST(rows.head, packs.head)::text AS head
     FROM unnest($1::text[], $2::text[], $3::text::bigint[])
          WITH ORDINALITY AS place(tenant, queue, floor, at)
     JOIN {schema}.queues AS queue ON queue.name = place.queue AND queue.paused_at IS NULL
    CROSS JOIN LATERAL (
      SELECT sum(line.count) AS count, min(line.head) AS head
        FROM {schema}.task_lanes AS lane
       CROSS JOIN LATERAL (
         SELECT count(*) AS count, min(first.claim_order) AS head
           FROM (SELECT ready.claim_order
                   FROM {schema}.tasks AS ready
                  WHERE ready.lane = lane.lane
                    AND ready.claim_order > place.floor
                    AND ready.state = 'pending'
                  ORDER BY ready.claim_order
                  LIMIT $4) AS first
       ) AS line
       WHERE lane.queue = place.queue AND lane.tenant = place.tenant
    ) AS rows
    CROSS JOIN LATERAL (
      SELECT sum(line.count) AS count, min(line.head) AS head
        FROM {schema}.task_lanes AS lane
       CROSS JOIN LATERAL (
         SELECT sum(first.count) AS count, min(first.id) AS head
           FROM (SELECT ready.id, cardinality(ready.ids) AS count
                   FROM {schema}.task_packs AS ready
                  WHERE ${packsBehind("ready", "lane.lane", "place.floor")}
                    AND ready.claim_id IS NULL
                  ORDER BY ${packOrder("ready")}
                  LIMIT ${PACKS_MAX}) AS first
       ) AS line
       WHERE lane.queue = place.queue AND lane.tenant = place.tenant AND lane.priority >= 0
    ) AS packs
     LEFT JOIN LATERAL (
       SELECT queue.key_space_id AS id
        WHERE place.tenant = 'default'
        UNION ALL
       SELECT one.id
         FROM {schema}.key_spaces AS one
        WHERE one.base_id = queue.key_space_id AND one.tenant = place.tenant
     ) AS space ON TRUE
     LEFT JOIN LATERAL (
       SELECT CASE WHEN count(*) FILTER (WHERE first.is_free) > 0
                   THEN count(*) FILTER (WHERE first.is_free)
                   WHEN count(*) = ${KEYED_MAX} THEN 1 ELSE 0 END AS count
         FROM (SELECT ready.queue = place.queue AND NOT EXISTS (
                        SELECT FROM {schema}.key_holds AS hold
                         WHERE hold.key_space_id = space.id
                           AND hold.tenant = ready.tenant
                           AND hold.partition_key = ready.partition_key
                           AND hold.why <> 'probation'
                           AND (hold.until IS NULL OR hold.until > NOW())) AS is_free
                 FROM {schema}.tasks AS ready
                WHERE ready.lane BETWEEN -(space.id * 360 + 360) AND -(space.id * 360 + 1)
                  AND ready.claim_order > 0
                  AND ready.state = 'pending'
                LIMIT ${KEYED_MAX}) AS first
     ) AS keyed ON TRUE
     LEFT JOIN LATERAL (
       SELECT CASE WHEN bool_or(first.queue = place.queue)
                   THEN sum(first.count) FILTER (WHERE first.queue = place.queue)
                   WHEN count(*) = ${PACKS_MAX} THEN 1 ELSE 0 END AS count
         FROM (SELECT ready.queue, cardinality(ready.ids) AS count
                 FROM {schema}.task_packs AS ready
                WHERE ${packsBehind("ready", "-(space.id + 1)", "0")}
                  AND ready.claim_id IS NULL
                ORDER BY ${packOrder("ready")}
                LIMIT ${PACKS_MAX}) AS first
     ) AS keyed_packs ON TRUE`,
);

export interface LookedAt extends Place {
  /** Of unkeyed tasks, nothing at or below it is looked at. */
  readonly floor: number;
}

export interface Work {
  /** Tasks that wait, counted up to `most`. */
  readonly waiting: number;
  /** Of the first unkeyed task that waits; undefined when none does. */
  readonly head: number | undefined;
}

/** What waits at each of the places, in their order; nothing at those that nobody knows. */
export async function lookForWork(
  db: Queryable,
  places: readonly LookedAt[],
  most: number,
): Promise<Work[]> {
  const rows = await db.query<{ at: number; waiting: number; head: string | null }>(LOOK, [
    places.map(({ tenant }) => tenant),
    places.map(({ queue }) => queue),
    `{${places.map(({ floor }) => floor).join(",")}}`,
    most,
  ]);
  const byPlace = new Map(rows.map((row) => [row.at, row]));
  return places.map((_, index) => {
    const row = byPlace.get(index + 1);
    const head = row?.head ?? null;
    return { waiting: row?.waiting ?? 0, head: head === null ? undefined : Number(head) };
  });
}
