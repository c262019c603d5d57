import type { Queryable } from "../../db/database.ts";
import { type Statement, statement } from "../../db/statement.ts";
import { type GrantProof, grantsOf, isGranted, LOSABLE } from "./claim.ts";
import { isSameServer } from "./crash-marker.ts";
import { tellOfPacks } from "./feed.ts";
import { packOrder, packsBehind } from "./pack-lane.ts";
import {
  type ClaimedPacks,
  leasedTo,
  PACK_FIELDS,
  type PackedPacks,
  unpackPacks,
} from "./packs.ts";

/** Packs of keyed tasks wait in one line per key space. */
export const keyedPackLane = (keySpaceId: number): number => -(keySpaceId + 1);

/** The packs of a key space that concern a worker. */
export interface WaitingPacks {
  readonly keySpaceId: number;
  /** Nothing at or below it waits. */
  readonly floor: number;
  /** Those of the worker that are open, as bits. */
  readonly buckets: string;
}

/**
 * The id of the first pack that waits in which the worker has a bucket, as `first_pack`. No row
 * behind it may be claimed, and no floor may pass it: its tasks come first, and become rows with
 * their own numbers when it is opened.
 */
export const firstPack = (keySpace: string, floor: string, buckets: string): string => `
   first_pack AS MATERIALIZED (
     SELECT COALESCE(
              (SELECT pack.id
                 FROM {schema}.task_packs AS pack
                WHERE ${packsBehind("pack", `-(${keySpace}::int + 1)`, `${floor}::bigint`)}
                  AND pack.claim_id IS NULL
                  AND (pack.bucket_set & ${buckets}::bit(360)) <> 0::bit(360)
                ORDER BY ${packOrder("pack")}
                LIMIT 1), 9223372036854775807) AS id
   )`;

// The lanes of a key space are neighbours in the index: an empty one costs a single probe.
export const ANY_ROW = `
     SELECT EXISTS (
       SELECT FROM {schema}.tasks
        WHERE lane BETWEEN -($1::int * 360 + 360) AND -($1::int * 360 + 1)
          AND claim_order > 0
          AND state = 'pending')`;

const PROBE = statement(
  "key_space_probe",
  `WITH ${firstPack("$1", "$2", "$3")}
   SELECT (${ANY_ROW}) AS has_rows,
          first_pack.id < 9223372036854775807 AS has_packs
     FROM first_pack`,
);

/** What waits in a key space. */
export interface KeySpaceProbe {
  /** Of any bucket. */
  readonly hasRows: boolean;
  readonly hasPacks: boolean;
  /** Undefined: it was not asked. */
  readonly hasHolds?: boolean;
}

export async function probeKeySpace(
  db: Queryable,
  { keySpaceId, floor, buckets }: WaitingPacks,
): Promise<KeySpaceProbe> {
  const values = [keySpaceId, floor, buckets];
  const [row] = await db.query<{ has_rows: boolean; has_packs: boolean }>(PROBE, values);
  return { hasRows: row?.has_rows === true, hasPacks: row?.has_packs === true };
}

// The same of many: most tenants have nothing to do at most times. One probe for each of them, with
// a limit, because a table that the planner takes for small would be read as a whole.
const PROBE_MANY = statement(
  "key_spaces_probe",
  `SELECT (SELECT TRUE
             FROM {schema}.tasks
            WHERE lane BETWEEN -(one.id * 360 + 360) AND -(one.id * 360 + 1)
              AND claim_order > 0
              AND state = 'pending'
            LIMIT 1) IS NOT NULL AS has_rows,
          (SELECT TRUE
             FROM {schema}.task_packs AS pack
            WHERE ${packsBehind("pack", "-(one.id + 1)", "one.floor")}
              AND pack.claim_id IS NULL
              AND (pack.bucket_set & one.buckets::bit(360)) <> 0::bit(360)
            ORDER BY ${packOrder("pack")}
            LIMIT 1) IS NOT NULL AS has_packs,
          (SELECT TRUE
             FROM {schema}.key_holds
            WHERE key_space_id = one.id
            LIMIT 1) IS NOT NULL AS has_holds
     FROM unnest($1::text::int[], $2::text::bigint[], $3::text[])
          WITH ORDINALITY AS one(id, floor, buckets, place)
    ORDER BY one.place`,
);

export async function probeKeySpaces(
  db: Queryable,
  spaces: readonly WaitingPacks[],
): Promise<KeySpaceProbe[]> {
  const rows = await db.query<{ has_rows: boolean; has_packs: boolean; has_holds: boolean }>(
    PROBE_MANY,
    [
      `{${spaces.map((one) => one.keySpaceId).join(",")}}`,
      `{${spaces.map((one) => one.floor).join(",")}}`,
      spaces.map((one) => one.buckets),
    ],
  );
  return rows.map((row) => ({
    hasRows: row.has_rows,
    hasPacks: row.has_packs,
    hasHolds: row.has_holds,
  }));
}

// Packs are taken in their order, up to the first that cannot be: one in which somebody else has a
// bucket, or a key is held, must be opened; one behind rows that may run waits for these. Rows that
// run are this worker's own, because its buckets are open, and wait in the same lines. As for rows:
// the owner's row is compared and locked, and nothing that is locked is passed over. One that was
// seen, and is gone when its lock is free, was opened meanwhile: its rows are later than what this
// statement sees, and come first.
const WAITING = `${packsBehind("one", "-($1::int + 1)", "$2::bigint")}
           AND one.claim_id IS NULL
           AND (one.bucket_set & $3::bit(360)) <> 0::bit(360)`;
const TAKE_IN_ORDER = `
   ), queue AS MATERIALIZED (
     SELECT paused_at
       FROM {schema}.queues
      WHERE key_space_id = $12::int
        FOR KEY SHARE
   ), seen AS MATERIALIZED (
     SELECT one.id
       FROM {schema}.task_packs AS one
      WHERE ${WAITING}
      ORDER BY ${packOrder("one")}
      LIMIT $9
   ), waiting AS MATERIALIZED (
     SELECT pack.id, pack.tenant, pack.keys, pack.buckets,
            (pack.bucket_set & ~ $10::bit(360)) <> 0::bit(360) AS is_shared,
            (pack.bucket_set & ~ $3::bit(360)) <> 0::bit(360) AS is_early
       FROM owner
      CROSS JOIN LATERAL (
        SELECT one.*
          FROM {schema}.task_packs AS one
         WHERE ${WAITING}
         ORDER BY ${packOrder("one")}
         LIMIT $9
           FOR UPDATE
      ) AS pack
      WHERE NOT EXISTS (SELECT FROM queue WHERE queue.paused_at IS NOT NULL)
        AND ${LOSABLE}
   ), any_hold AS MATERIALIZED (
     SELECT EXISTS (SELECT FROM {schema}.key_holds WHERE key_space_id = $1::int) AS found
   ), any_row AS MATERIALIZED (
     SELECT (${ANY_ROW}) AS found
   ), judged AS MATERIALIZED (
     SELECT waiting.id,
            CASE
              WHEN waiting.is_shared THEN 'shared'
              WHEN (SELECT found FROM any_hold) AND EXISTS (
                     SELECT FROM unnest(string_to_array(waiting.keys, chr(30))) AS one(key)
                       JOIN {schema}.key_holds AS hold
                         ON hold.key_space_id = $1::int
                        AND hold.tenant = waiting.tenant
                        AND hold.partition_key = one.key) THEN 'held'
              WHEN waiting.is_early THEN 'behind'
              WHEN (SELECT found FROM any_row) AND EXISTS (
                     SELECT FROM unnest(waiting.buckets) AS one(bucket)
                       JOIN {schema}.tasks AS before
                         ON before.lane = -($1::int * 360 + one.bucket + 1)
                        AND before.claim_order > 0
                        AND before.claim_order < waiting.id
                        AND before.state = 'pending'
                      WHERE NOT EXISTS (
                              SELECT FROM {schema}.key_holds AS hold
                               WHERE hold.key_space_id = $1::int
                                 AND hold.tenant = before.tenant
                                 AND hold.partition_key = before.partition_key)) THEN 'behind'
            END AS obstacle
       FROM waiting
      UNION ALL
     SELECT seen.id, 'behind'
       FROM owner
      CROSS JOIN seen
      WHERE seen.id NOT IN (SELECT id FROM waiting)
   ), obstacle AS MATERIALIZED (
     SELECT id, obstacle FROM judged WHERE obstacle IS NOT NULL ORDER BY id LIMIT 1
   ), picked AS MATERIALIZED (
     SELECT array_agg(judged.id) AS ids
       FROM judged
      WHERE judged.id < COALESCE((SELECT id FROM obstacle), 9223372036854775807)
   ), claimed AS (
     UPDATE {schema}.task_packs AS pack
        SET ${leasedTo("$4", "$5", "$6")}
      WHERE pack.id = ANY ((SELECT ids FROM picked)::bigint[])
        AND pack.claim_id IS NULL
     RETURNING pack.*
   ), ledger AS (
     INSERT INTO {schema}.task_claims
            (claim_id, worker_id, check_at, task_ids, pack_ids, key_lanes)
     SELECT $4::uuid, $5::uuid, NOW() + make_interval(secs => $6::float8),
            ARRAY(SELECT unnest(ids) FROM claimed), picked.ids, $11::text::int[]
       FROM picked
      WHERE picked.ids IS NOT NULL
   ),${tellOfPacks({ rows: "claimed", state: "'running'", worker: "leased_by" })}
   SELECT string_agg(concat(${PACK_FIELDS}, chr(31), keys, chr(31),
                            array_to_string(buckets, ','), chr(31), queue, chr(31), tenant,
                            chr(31), priority), chr(29)) AS packs,
          (SELECT obstacle FROM obstacle) AS obstacle,
          date_part('epoch', NOW() + make_interval(secs => $6::float8)) AS until
     FROM claimed`;

const claim = (name: string, grants: string, granted: string): Statement =>
  statement(
    name,
    `WITH ${grants}owner AS MATERIALIZED (
     SELECT 1
       FROM {schema}.bucket_owners
      WHERE key_space_id = $1::int AND worker_id = $5::uuid AND epoch = $7::bigint
        AND ${isSameServer("$8")}${granted}
        FOR SHARE${TAKE_IN_ORDER}`,
  );

const CLAIM = claim("packs_claim_keyed", "", "");
const CLAIM_LIMITED = claim(
  "packs_claim_keyed_limited",
  `grants AS MATERIALIZED (${grantsOf("$13", "$5")}
   ), `,
  `
        AND ${isGranted("$13", "$14", "$15")}`,
);

export interface KeyedPackClaim extends WaitingPacks {
  /** The space that its queues name. */
  readonly baseId: number;
  readonly claimId: string;
  readonly workerId: string;
  readonly leaseSeconds: number;
  readonly epoch: string;
  /** Of the server that the floor was learnt from; null when none was. */
  readonly marker: string | null;
  /** What it owns, open or not, as bits. */
  readonly owned: string;
  /** The open ones, as an array: where to look for what it holds. */
  readonly lanes: string;
  /** How many packs. */
  readonly take: number;
  /** Of the limits of their queue. Defaults to none. */
  readonly proofs?: readonly GrantProof[];
}

/**
 * Why the first pack that was not taken could not be: somebody else owns one of its buckets, one of
 * its keys is held, or it is behind rows that may run, here or in a bucket that is not open yet.
 */
export type Obstacle = "shared" | "held" | "behind";

interface PackedKeyedPacks extends PackedPacks {
  readonly obstacle: Obstacle | null;
}

export interface ClaimedKeyedPacks extends ClaimedPacks {
  readonly obstacle: Obstacle | null;
}

/** Takes packs whole, of buckets that this worker owns. In no particular order. */
export async function claimKeyedPacks(
  db: Queryable,
  request: KeyedPackClaim,
): Promise<ClaimedKeyedPacks> {
  const { keySpaceId, floor, buckets, claimId, workerId, leaseSeconds, epoch, marker } = request;
  const { proofs = [] } = request;
  const values = [
    keySpaceId,
    floor,
    buckets,
    claimId,
    workerId,
    leaseSeconds,
    epoch,
    marker,
    request.take,
    request.owned,
    request.lanes,
    request.baseId,
  ];
  const limits = [
    proofs.map((one) => one.queue),
    proofs.map((one) => one.slots),
    proofs.map((one) => one.deadline),
  ];
  const [row] =
    proofs.length === 0
      ? await db.query<PackedKeyedPacks>(CLAIM, values)
      : await db.query<PackedKeyedPacks>(CLAIM_LIMITED, [...values, ...limits]);
  return { ...unpackPacks(row), obstacle: row?.obstacle ?? null };
}
