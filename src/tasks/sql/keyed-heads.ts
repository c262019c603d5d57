import { packOrder, packsBehind, rowOrder, rowsBehind } from "./pack-lane.ts";

/** Lanes that are looked at, of rows and of packs, and how far into each: what the look costs. */
const LANES_MAX = 1_000;
const DEPTH_MAX = 10;

// From one lane that holds something to the next, along the index, a descent for each: nothing
// says which of the 360 lanes of every key space do.
const lanesOf = (name: string, table: string, condition: string): string => `
   ${name} AS (
     (SELECT one.lane, 1 AS number
        FROM {schema}.${table} AS one
       WHERE one.lane < 0 AND ${condition}
       ORDER BY one.lane
       LIMIT 1)
      UNION ALL
     SELECT next.lane, before.number + 1
       FROM ${name} AS before
      CROSS JOIN LATERAL (
        SELECT one.lane
          FROM {schema}.${table} AS one
         WHERE one.lane > before.lane AND one.lane < 0 AND ${condition}
         ORDER BY one.lane
         LIMIT 1) AS next
      WHERE before.number < ${LANES_MAX}
   )`;

/**
 * The keyed tasks that are first in their lanes and could run, as `keyed_head` with queue and time,
 * for a WITH RECURSIVE. Bounded, because keys may be in any number of lanes: what is in further
 * lanes, or behind as many that run or are held, is not among them. Keys that are held wait for
 * something else than a worker.
 */
export const KEYED_HEADS = `${lanesOf("keyed_lane", "tasks", "one.claim_order > 0")},
   ${lanesOf("packed_lane", "task_packs", "one.id > 0")},
   keyed_head AS (
     SELECT head.queue, head.run_at
       FROM keyed_lane AS line
      CROSS JOIN LATERAL (
        SELECT first.queue, first.run_at, first.state, first.tenant, first.partition_key
          FROM {schema}.tasks AS first
         WHERE ${rowsBehind("first", "line.lane", "0")}
         ORDER BY ${rowOrder("first")}
         LIMIT ${DEPTH_MAX}) AS head
      WHERE head.state = 'pending'
        AND head.run_at <= NOW()
        AND NOT EXISTS (
              SELECT FROM {schema}.key_holds AS hold
               WHERE hold.key_space_id = (-line.lane - 1) / 360
                 AND hold.tenant = head.tenant
                 AND hold.partition_key = head.partition_key
                 AND (hold.until IS NULL OR hold.until > NOW())
              OFFSET 0) -- Each by its key: a join of a table without statistics would not.
      UNION ALL
     SELECT head.queue, head.created_at
       FROM packed_lane AS line
      CROSS JOIN LATERAL (
        SELECT first.queue, first.created_at, first.claim_id
          FROM {schema}.task_packs AS first
         WHERE ${packsBehind("first", "line.lane", "0")}
         ORDER BY ${packOrder("first")}
         LIMIT ${DEPTH_MAX}) AS head
      WHERE head.claim_id IS NULL
   )`;
