import type { Queryable } from "../../db/database.ts";
import { statement } from "../../db/statement.ts";
import { MARKER } from "./crash-marker.ts";
import { firstPack, type WaitingPacks } from "./key-packs.ts";

export interface HeldKey {
  readonly tenant: string;
  readonly key: string;
}

/** Where to begin in the lane of a bucket. */
export interface KeyLaneStart {
  readonly lane: number;
  /** Nothing at or below it is pending. */
  readonly floor: number;
  /** Up to here only tasks of `held` keys are pending, and of keys that are excepted. */
  readonly start: number;
  readonly held: readonly HeldKey[];
}

interface StartValues {
  readonly lines: { readonly lanes: string; readonly floors: string; readonly starts: string };
  readonly held: readonly [lanes: string, tenants: string[], keys: string[]];
}

/** For the parameters of {@link linesOf}. */
export function startValues(lanes: readonly KeyLaneStart[]): StartValues {
  const held = lanes.flatMap((one) => one.held.map((key) => ({ ...key, lane: one.lane })));
  return {
    lines: {
      lanes: `{${lanes.map((one) => one.lane).join(",")}}`,
      floors: `{${lanes.map((one) => one.floor).join(",")}}`,
      starts: `{${lanes.map((one) => one.start).join(",")}}`,
    },
    held: [
      `{${held.map((one) => one.lane).join(",")}}`,
      held.map((one) => one.tenant),
      held.map((one) => one.key),
    ],
  };
}

/**
 * Lanes and after which order each begins. A key with a long backlog that is held would be walked
 * over each time, because the floor must not pass it: it may flow again before we hear of it, and
 * then comes first. So what lies behind it is remembered, and holds only while this snapshot shows
 * all of the lane's keys as held that were when it was found.
 */
export const linesOf = (keySpace: string, given: string, held: string): string => `
   flowing AS MATERIALIZED (
     SELECT passed.lane
       FROM unnest(${held}) AS passed(lane, tenant, key)
      WHERE NOT EXISTS (
              SELECT FROM {schema}.key_holds AS hold
               WHERE hold.key_space_id = ${keySpace}
                 AND hold.tenant = passed.tenant
                 AND hold.partition_key = passed.key)
   ), line AS MATERIALIZED (
     SELECT one.*,
            CASE WHEN one.lane IN (SELECT lane FROM flowing)
                 THEN one.floor ELSE one.start END AS after
       FROM ${given}
   )`;

/** Asked only of lanes in which something was passed over. */
const ifPassed = (query: string): string =>
  `CASE WHEN first.claim_order < COALESCE(free.claim_order, 9223372036854775807)
               THEN (${query}) END`;

const LOOK = statement(
  "key_lanes_look",
  `WITH ${linesOf(
    "$1",
    `unnest($2::text::int[], $3::text::bigint[], $4::text::bigint[])
            AS one(lane, floor, start)`,
    "$5::text::int[], $6::text[], $7::text[]",
  )},${firstPack("$1", "$10", "$11")}
   SELECT line.lane, first.claim_order, free.claim_order AS free_order,
          ${ifPassed(`
            SELECT last.claim_order
              FROM {schema}.tasks AS last
             WHERE last.lane = line.lane
               AND last.claim_order > 0
             ORDER BY last.claim_order DESC
             LIMIT 1`)} AS last_order,
          ${ifPassed(`
            SELECT json_agg(json_build_object('tenant', tenant, 'key', partition_key))
              FROM (SELECT DISTINCT tenant, partition_key
                      FROM {schema}.key_holds
                     WHERE lane = line.lane
                     LIMIT $9) AS one`)} AS held,
          (SELECT id::text FROM first_pack) AS first_pack,
          pg_snapshot_xmin(pg_current_snapshot())::text AS oldest_running,
          ${MARKER} AS marker
     FROM line
     LEFT JOIN LATERAL (
       SELECT ready.claim_order
         FROM {schema}.tasks AS ready
        WHERE ready.lane = line.lane
          AND ready.claim_order > line.floor
          AND ready.state = 'pending'
        ORDER BY ready.claim_order
        LIMIT 1
     ) AS first ON TRUE
     LEFT JOIN LATERAL (
       SELECT ready.claim_order
         FROM {schema}.tasks AS ready
        WHERE ready.lane = line.lane
          AND ready.claim_order >= first.claim_order
          AND ready.claim_order > line.after
          AND ready.state = 'pending'
          AND ready.tenant || chr(31) || ready.partition_key <> ALL ($8::text[])
          AND NOT EXISTS (
            SELECT FROM {schema}.key_holds AS hold
             WHERE hold.key_space_id = $1
               AND hold.tenant = ready.tenant
               AND hold.partition_key = ready.partition_key)
        ORDER BY ready.claim_order
        LIMIT 1
     ) AS free ON TRUE`,
);

const NO_PACK = "9223372036854775807";

export interface KeyLaneView {
  readonly lane: number;
  /** Of the first pending task, held or not; null when there is none. */
  readonly order: number | null;
  /** Of the first pending task that is neither held nor excepted. */
  readonly freeOrder: number | null;
  /** When there is something before that: the newest of the lane, and the keys that are held. */
  readonly passed: { readonly lastOrder: number; readonly held: readonly HeldKey[] } | undefined;
}

export interface KeyLook {
  readonly lanes: readonly KeyLaneView[];
  /** Of the first pack that waits; Infinity when none does. */
  readonly firstPack: number;
  readonly oldestRunning: bigint;
  /** Null: the server has crashed. */
  readonly marker: string | null;
}

export interface KeyLookRequest {
  readonly packs: WaitingPacks;
  /** Tenant and key, with a FIELD between. */
  readonly exceptKeys: readonly string[];
  /** Held keys of a lane that are worth telling. */
  readonly heldMax: number;
}

export async function lookAtKeyLanes(
  db: Queryable,
  { packs, exceptKeys, heldMax }: KeyLookRequest,
  lanes: readonly KeyLaneStart[],
): Promise<KeyLook> {
  const { lines, held } = startValues(lanes);
  const rows = await db.query<{
    lane: number;
    claim_order: string | null;
    free_order: string | null;
    last_order: string | null;
    held: HeldKey[] | null;
    first_pack: string;
    oldest_running: string;
    marker: string | null;
  }>(LOOK, [
    packs.keySpaceId,
    lines.lanes,
    lines.floors,
    lines.starts,
    ...held,
    [...exceptKeys],
    heldMax,
    packs.floor,
    packs.buckets,
  ]);
  const toNumber = (order: string | null): number | null => (order === null ? null : Number(order));
  return {
    lanes: rows.map((row) => ({
      lane: row.lane,
      order: toNumber(row.claim_order),
      freeOrder: toNumber(row.free_order),
      passed:
        row.last_order === null
          ? undefined
          : { lastOrder: Number(row.last_order), held: row.held ?? [] },
    })),
    firstPack: rows[0]?.first_pack === NO_PACK ? Infinity : Number(rows[0]?.first_pack ?? 0),
    oldestRunning: BigInt(rows[0]?.oldest_running ?? 0),
    marker: rows[0]?.marker ?? null,
  };
}
