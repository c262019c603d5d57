import type { Queryable } from "../../db/database.ts";
import { statement } from "../../db/statement.ts";
import {
  type ClaimedRows,
  type ClaimRequest,
  grantsOf,
  isGranted,
  LOSABLE,
  type PackedRows,
  takePicked,
  unpack,
} from "./claim.ts";
import { isSameServer } from "./crash-marker.ts";
import { type KeyLaneStart, linesOf, startValues } from "./key-lanes.ts";
import { firstPack, type WaitingPacks } from "./key-packs.ts";

const MINE = statement(
  "buckets_mine",
  `SELECT owner.key_space_id, owner.epoch, owner.buckets, space.tenant,
          COALESCE(space.base_id, space.id) AS base_id
     FROM {schema}.bucket_owners AS owner
     JOIN {schema}.key_spaces AS space ON space.id = owner.key_space_id
    WHERE owner.worker_id = $1`,
);

export interface OwnedBuckets {
  readonly keySpaceId: number;
  /** The space that its queues name. */
  readonly baseId: number;
  readonly tenant: string;
  readonly epoch: string;
  readonly buckets: readonly number[];
}

export async function readOwnedBuckets(db: Queryable, workerId: string): Promise<OwnedBuckets[]> {
  const rows = await db.query<{
    key_space_id: number;
    base_id: number;
    tenant: string;
    epoch: string;
    buckets: number[];
  }>(MINE, [workerId]);
  return rows.map((row) => ({
    keySpaceId: row.key_space_id,
    baseId: row.base_id,
    tenant: row.tenant,
    epoch: row.epoch,
    buckets: row.buckets,
  }));
}

// Through the ledger, and each by its id: what runs is few, what is pending may be millions. A
// snapshot that shows the bucket as mine shows every claim that its owner before me made in it.
const FOREIGN = statement(
  "key_lanes_foreign",
  `SELECT task.lane
     FROM {schema}.task_claims AS claim
    CROSS JOIN LATERAL unnest(claim.task_ids) AS one(id)
    CROSS JOIN LATERAL (
      SELECT live.id, live.lane
        FROM {schema}.tasks AS live
       WHERE live.id = one.id AND live.claim_id = claim.claim_id
      OFFSET 0
    ) AS task
    WHERE claim.key_lanes && $1::text::int[]
      AND task.lane = ANY ($1::text::int[])
      AND task.id <> ALL ($2::text::bigint[])
    UNION
   SELECT held.lane
     FROM {schema}.task_claims AS claim
    CROSS JOIN LATERAL unnest(claim.pack_ids) AS one(id)
    CROSS JOIN LATERAL (
      SELECT live.lane, live.ids, live.buckets
        FROM {schema}.task_packs AS live
       WHERE live.id = one.id AND live.claim_id = claim.claim_id
      OFFSET 0
    ) AS pack
    CROSS JOIN LATERAL (
      SELECT (pack.lane + 1) * 360 - task.bucket - 1 AS lane
        FROM unnest(pack.ids, pack.buckets) AS task(id, bucket)
       WHERE task.id <> ALL ($2::text::bigint[])
    ) AS held
    WHERE claim.key_lanes && $1::text::int[]
      AND held.lane = ANY ($1::text::int[])`,
);

/** Of these lanes, those in which a task is held that is none of `ours`. */
export async function findForeignLanes(
  db: Queryable,
  lanes: readonly number[],
  ours: readonly string[],
): Promise<Set<number>> {
  const values = [`{${lanes.join(",")}}`, `{${ours.join(",")}}`];
  const rows = await db.query<{ lane: number }>(FOREIGN, values);
  return new Set(rows.map((row) => row.lane));
}

// The owner's row is locked and compared first: a move waits for this claim, and a claim that comes
// after a move finds another epoch and takes nothing. No SKIP LOCKED: to pass over a row that
// somebody has locked would run the next task of its key before it.
const owner = (
  [queues, slots, deadlines]: readonly [string, string, string],
  base: string,
  more = "TRUE",
): string => `
   grants AS MATERIALIZED (${grantsOf(queues)}
   ), owner AS MATERIALIZED (
     SELECT 1
       FROM {schema}.bucket_owners
      WHERE key_space_id = $4 AND worker_id = $2::uuid AND epoch = $5::bigint
        AND ${isGranted(queues, slots, deadlines)}
        AND ${more}
        FOR SHARE
   ), queue AS MATERIALIZED (
     SELECT name, paused_at
       FROM {schema}.queues
      WHERE key_space_id = ${base}::int
        FOR KEY SHARE
   )`;

// Asked once for all, because most key spaces have no hold at most times. Where there are some, a
// task is looked up among them by its key, which a join would not do on a table without statistics.
const ANY_HOLD = `
   any_hold AS MATERIALIZED (
     SELECT EXISTS (SELECT FROM {schema}.key_holds WHERE key_space_id = $4) AS found
   )`;

const NOT_HELD = `
               ((SELECT NOT found FROM any_hold) OR NOT EXISTS (
                 SELECT FROM {schema}.key_holds AS hold
                  WHERE hold.key_space_id = $4
                    AND hold.tenant = ready.tenant
                    AND hold.partition_key = ready.partition_key))`;

/** A row that was cancelled meanwhile is in the ledger and not taken: nobody finds it there. */
const TAKEN = "task.id = ANY ((SELECT ids FROM picked)::bigint[]) AND task.state = 'pending'";
const TAKE_HEADS = takePicked(TAKEN, "picked.lanes", "TRUE");
// What waits behind a pack was passed over, too.
const TAKE_PICKED = takePicked(
  TAKEN,
  "picked.lanes",
  "(SELECT found FROM any_hold) OR (SELECT id FROM first_pack) < 9223372036854775807",
);
const FIRST_PACK = firstPack("$4", "$18", "$19");
const BEFORE_PACKS = "ready.claim_order < (SELECT id FROM first_pack)";

const LINES = linesOf(
  "$4",
  `unnest($6::text::int[], $7::text::bigint[], $14::text::bigint[], $8::text::int[])
            AS one(lane, floor, start, take)`,
  "$15::text::int[], $16::text[], $17::text[]",
);

const OWNER = owner(["$10", "$11", "$12"], "$20", isSameServer("$13"));
const CLAIM_KEYED = statement(
  "tasks_claim_keyed",
  `WITH ${OWNER},${ANY_HOLD},${LINES},${FIRST_PACK},
   picked AS MATERIALIZED (
     SELECT array_agg(pick.id) AS ids, array_agg(line.lane) AS lanes
       FROM owner
      CROSS JOIN line
      CROSS JOIN LATERAL (
        SELECT ready.id
          FROM {schema}.tasks AS ready
         WHERE ready.lane = line.lane
           AND ready.claim_order > line.after
           AND ready.state = 'pending'
           AND ${BEFORE_PACKS}
           AND ready.tenant || chr(31) || ready.partition_key <> ALL ($9::text[])
           AND ${NOT_HELD}
         ORDER BY ready.claim_order
         LIMIT line.take
      ) AS pick
      WHERE NOT EXISTS (
              SELECT FROM queue WHERE queue.paused_at IS NOT NULL)
        AND ${LOSABLE}
   ), ${TAKE_PICKED}`,
);

// As above, for key spaces with limits or with several queues, of which one may be paused: at most
// so many of each key and of each limited queue, and none of a key behind one that is refused.
const CLAIM_KEYED_LIMITED = statement(
  "tasks_claim_keyed_limited",
  `WITH ${OWNER},${ANY_HOLD},${LINES},${FIRST_PACK},
   candidate AS MATERIALIZED (
     SELECT pick.id, line.lane, pick.tenant, pick.partition_key, pick.claim_order, pick.queue,
            EXISTS (SELECT FROM queue
                     WHERE queue.name = pick.queue AND queue.paused_at IS NOT NULL) AS is_paused
       FROM owner
      CROSS JOIN line
      CROSS JOIN LATERAL (
        SELECT ready.id, ready.tenant, ready.partition_key, ready.claim_order, ready.queue
          FROM {schema}.tasks AS ready
         WHERE ready.lane = line.lane
           AND ready.claim_order > line.after
           AND ready.state = 'pending'
           AND ${BEFORE_PACKS}
           AND ready.tenant || chr(31) || ready.partition_key <> ALL ($9::text[])
           AND ${NOT_HELD}
         ORDER BY ready.claim_order
         LIMIT line.take
      ) AS pick
      WHERE ${LOSABLE}
   ), admitted AS (
     SELECT candidate.*,
            candidate.is_paused
            OR row_number() OVER (PARTITION BY candidate.queue ORDER BY candidate.claim_order)
               > COALESCE(given.allowed, 2147483647) AS is_refused
       FROM candidate
       LEFT JOIN unnest($25::text[], $26::int[]) AS given(queue, allowed)
         ON given.queue = candidate.queue
   ), ranked AS (
     SELECT admitted.id, admitted.lane,
            row_number() OVER same_key AS rank,
            bool_or(admitted.is_refused) OVER same_key AS is_behind_refused,
            COALESCE(given.allowed, $21::int) AS allowed
       FROM admitted
       LEFT JOIN unnest($22::text[], $23::text[], $24::int[]) AS given(tenant, key, allowed)
         ON given.tenant = admitted.tenant AND given.key = admitted.partition_key
     WINDOW same_key AS (PARTITION BY admitted.tenant, admitted.partition_key
                         ORDER BY admitted.claim_order)
   ), picked AS MATERIALIZED (
     SELECT array_agg(id) AS ids, array_agg(lane) AS lanes
       FROM ranked
      WHERE rank <= allowed AND NOT is_behind_refused
   ), ${TAKE_PICKED}`,
);

export interface KeyedClaimRequest extends ClaimRequest {
  readonly keySpaceId: number;
  /** The space that its queues name. */
  readonly baseId: number;
  readonly epoch: string;
  /** Of the server that the floors were learnt from; null when none was. */
  readonly marker: string | null;
  /** Rows behind the first of these are not taken. */
  readonly packs: Omit<WaitingPacks, "keySpaceId">;
  /** Keys of which nothing more is wanted now. */
  /** Tenant and key, with a FIELD between. */
  readonly exceptKeys: readonly string[];
  /** Undefined: as many of a key as come. */
  readonly perKey?: KeyAllowance;
}

export interface KeyAllowance {
  /** Of a key that is not named. */
  readonly otherwise: number;
  readonly keys: readonly {
    readonly tenant: string;
    readonly key: string;
    readonly allowed: number;
  }[];
  /** Of limited queues. */
  readonly queues: readonly { readonly queue: string; readonly allowed: number }[];
}

const INT_MAX = 2_147_483_647;

export interface KeyLaneRequest extends KeyLaneStart {
  readonly take: number;
}

/** Takes pending tasks of buckets that this worker owns. In no particular order. */
export async function claimKeyedTasks(
  db: Queryable,
  request: KeyedClaimRequest,
  lanes: readonly KeyLaneRequest[],
): Promise<ClaimedRows> {
  const { claimId, workerId, leaseSeconds, keySpaceId, epoch, exceptKeys, perKey } = request;
  const { proofs, marker, packs } = request;
  const { lines, held } = startValues(lanes);
  const values = [
    claimId,
    workerId,
    leaseSeconds,
    keySpaceId,
    epoch,
    lines.lanes,
    lines.floors,
    `{${lanes.map((one) => one.take).join(",")}}`,
    [...exceptKeys],
    proofs.map((one) => one.queue),
    proofs.map((one) => one.slots),
    proofs.map((one) => one.deadline),
    marker,
    lines.starts,
    ...held,
    packs.floor,
    packs.buckets,
    request.baseId,
  ];
  if (perKey === undefined) return unpack(await db.query<PackedRows>(CLAIM_KEYED, values));
  const rows = await db.query<PackedRows>(CLAIM_KEYED_LIMITED, [
    ...values,
    perKey.otherwise,
    perKey.keys.map((one) => one.tenant),
    perKey.keys.map((one) => one.key),
    perKey.keys.map((one) => one.allowed),
    perKey.queues.map((one) => one.queue),
    perKey.queues.map((one) => Math.min(one.allowed, INT_MAX)),
  ]);
  return unpack(rows);
}

// A held key is driven by its holds: only the task that they name is claimed, alone of its key, and
// only when no task of the key is before it. At most one task on probation, so that the one that
// takes its worker along is known.
const CLAIM_HEADS = statement(
  "tasks_claim_heads",
  `WITH ${owner(["$9", "$10", "$11"], "$13")}, first AS MATERIALIZED (
     SELECT DISTINCT ON (hold.tenant, hold.partition_key)
            task.id, task.lane, task.claim_order, task.state, task.run_at, task.on_probation,
            task.queue, hold.tenant, hold.partition_key, hold.until
       FROM owner
      CROSS JOIN {schema}.key_holds AS hold
       JOIN {schema}.tasks AS task ON task.id = hold.task_id
      WHERE hold.key_space_id = $4
        AND hold.lane = ANY ($6::text::int[])
        AND hold.why IN ('retry', 'probation')
        AND ${LOSABLE}
      ORDER BY hold.tenant, hold.partition_key, task.claim_order
   ), due AS MATERIALIZED (
     SELECT first.id, first.lane, first.on_probation, first.until
       FROM first
       JOIN queue ON queue.name = first.queue
      WHERE first.state = 'pending'
        AND first.run_at <= NOW()
        AND queue.paused_at IS NULL
        AND first.queue <> ALL ($12::text[])
        AND first.tenant || chr(31) || first.partition_key <> ALL ($14::text[])
        AND NOT EXISTS (
              SELECT FROM {schema}.key_holds AS other
               WHERE other.key_space_id = $4
                 AND other.tenant = first.tenant
                 AND other.partition_key = first.partition_key
                 AND (other.until IS NULL OR other.until > NOW()))
        AND NOT EXISTS (
              SELECT FROM {schema}.tasks AS before
               WHERE before.lane = first.lane
                 AND before.claim_order < first.claim_order
                 AND before.tenant = first.tenant
                 AND before.partition_key = first.partition_key)
   ), picked AS MATERIALIZED (
     SELECT array_agg(one.id) AS ids, array_agg(one.lane) AS lanes
       FROM (SELECT id, lane
               FROM ((SELECT id, lane, until FROM due
                       WHERE NOT on_probation ORDER BY until LIMIT $7)
                      UNION ALL
                     (SELECT id, lane, until FROM due
                       WHERE on_probation ORDER BY until LIMIT $8)) AS either
              ORDER BY until
              LIMIT $7) AS one
   ), ${TAKE_HEADS}`,
);

export interface HeadsWanted {
  readonly all: number;
  /** Of these, how many may be on probation. */
  readonly probation: number;
  /** Queues that are at their limit. */
  readonly exceptQueues: readonly string[];
  /** Keys that are at theirs: tenant and key, with a FIELD between. */
  readonly exceptKeys: readonly string[];
}

export async function claimHeldHeads(
  db: Queryable,
  request: Omit<KeyedClaimRequest, "exceptKeys" | "perKey" | "marker" | "packs">,
  lanes: readonly number[],
  take: HeadsWanted,
): Promise<ClaimedRows> {
  const { claimId, workerId, leaseSeconds, keySpaceId, baseId, epoch, proofs } = request;
  const rows = await db.query<PackedRows>(CLAIM_HEADS, [
    claimId,
    workerId,
    leaseSeconds,
    keySpaceId,
    epoch,
    `{${lanes.join(",")}}`,
    take.all,
    take.probation,
    proofs.map((one) => one.queue),
    proofs.map((one) => one.slots),
    proofs.map((one) => one.deadline),
    [...take.exceptQueues],
    baseId,
    [...take.exceptKeys],
  ]);
  return unpack(rows);
}
