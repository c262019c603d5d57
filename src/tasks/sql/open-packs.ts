import type { Queryable } from "../../db/database.ts";
import { type Statement, statement } from "../../db/statement.ts";
import type { LaneRequest } from "./claim.ts";
import { keyedPackLane, type WaitingPacks } from "./key-packs.ts";
import { packOrder, packsBehind } from "./pack-lane.ts";
import { ANSWER, askOfPacks, FREE, locked, type PackAnswer, type PackToken } from "./packs.ts";

// Unkeyed tasks that wait get numbers of their own: the lane of rows may be far beyond theirs.
// Those that run keep the first; who puts one back draws another. Keyed ones always keep their
// place: no floor passes a pack that waits, and who holds one lowers it when something goes back.
const TO_ROWS = `
     INSERT INTO {schema}.tasks
            (id, claim_order, created_at, run_at, lane, max_attempts, priority, state, attempt,
             lease_generation, claim_id, leased_by, claimed_at, lease_until, tenant, queue, kind,
             payload, options, partition_key, partition_bucket)
     SELECT id, CASE WHEN claim_id IS NULL AND partition_key IS NULL
                     THEN nextval('{schema}.task_numbers') ELSE id END,
            created_at, created_at,
            CASE WHEN partition_key IS NULL THEN lane ELSE (lane + 1) * 360 - bucket - 1 END,
            max_attempts, priority,
            CASE WHEN claim_id IS NULL THEN 'pending' ELSE 'running' END,
            (claim_id IS NOT NULL)::int, (claim_id IS NOT NULL)::int,
            claim_id, leased_by, claimed_at, lease_until, tenant, queue, kind, payload, options,
            partition_key, bucket
       FROM (SELECT one.id, one.payload, one.partition_key, one.bucket,
                    done.created_at, done.lane, done.max_attempts,
                    done.priority, done.claim_id, done.leased_by, done.claimed_at,
                    done.lease_until, done.tenant, done.queue, done.kind, done.options
               FROM done
              CROSS JOIN LATERAL unnest(done.ids, string_to_array(done.payloads, chr(30)),
                                        string_to_array(done.keys, chr(30)), done.buckets)
                         AS one(id, payload, partition_key, bucket)
              ORDER BY one.id) AS task
     RETURNING claim_order`;

/** What is picked becomes rows of tasks, all of it in one statement. */
const open = (name: string, picked: string, answer: string): Statement =>
  statement(
    name,
    `WITH free AS MATERIALIZED (${picked}
   ), done AS (
     DELETE FROM {schema}.task_packs AS pack
      USING free
      WHERE pack.id = free.id
     RETURNING pack.*
   ), rows AS (${TO_ROWS}
   )${answer}`,
  );
const COUNT = " SELECT count(*)::int AS count FROM done";

const OPEN_CLAIMED = open("packs_open_claimed", FREE, ANSWER);
const OPEN_CLAIMED_PATIENTLY = open("packs_open_claimed_patiently", locked(""), ANSWER);

/** Of packs that run, each task becomes a row that runs, under the same claim. */
export async function openClaimedPacks(
  db: Queryable,
  packs: readonly PackToken[],
): Promise<PackAnswer> {
  return await askOfPacks(db, OPEN_CLAIMED, packs);
}

const ISOLATION = statement(
  "transaction_isolation",
  "SELECT current_setting('transaction_isolation') AS level",
);

/** Whether a transaction sees what others commit while it is open. */
export async function seesLaterCommits(tx: Queryable): Promise<boolean> {
  const [row] = await tx.query<{ level: string }>(ISOLATION);
  return row?.level === "read committed";
}

/** Waits for whoever has the pack locked. */
export async function openClaimedPack(db: Queryable, pack: PackToken): Promise<void> {
  await askOfPacks(db, OPEN_CLAIMED_PATIENTLY, [pack]);
}

// Of a queue that is paused, what waits stays as it is.
const OPEN_WAITING = open(
  "packs_open_waiting",
  `
     SELECT ready.id
       FROM (SELECT known.lane
               FROM {schema}.task_lanes AS known
               JOIN {schema}.queues AS queue ON queue.name = known.queue
              WHERE known.lane = $1::int
                AND queue.paused_at IS NULL
                FOR KEY SHARE OF queue) AS line
      CROSS JOIN LATERAL (
        SELECT pack.id
          FROM {schema}.task_packs AS pack
         WHERE ${packsBehind("pack", "line.lane", "$2::bigint")}
           AND pack.claim_id IS NULL
         ORDER BY ${packOrder("pack")}
         LIMIT $3
           FOR UPDATE SKIP LOCKED
      ) AS ready`,
  ` SELECT (SELECT count(*)::int FROM done) AS count,
          (SELECT max(id)::text FROM done) AS last,
          (SELECT max(claim_order)::text FROM rows) AS last_row`,
);

// The first in which the worker has a bucket, whoever has the others.
const OPEN_KEYED = open(
  "packs_open_keyed",
  `
     SELECT ready.id
       FROM (SELECT pack.id, pack.queue
               FROM {schema}.task_packs AS pack
              WHERE ${packsBehind("pack", "$1::int", "$2::bigint")}
                AND pack.claim_id IS NULL
                AND (pack.bucket_set & $3::bit(360)) <> 0::bit(360)
              ORDER BY ${packOrder("pack")}
              LIMIT $4
                FOR UPDATE) AS ready
       JOIN {schema}.queues AS queue ON queue.name = ready.queue AND queue.paused_at IS NULL`,
  COUNT,
);

/** Packs of keyed tasks become rows that wait at the same places. Returns how many did. */
export async function openKeyedPacks(
  db: Queryable,
  { keySpaceId, floor, buckets }: WaitingPacks,
  take: number,
): Promise<number> {
  const values = [keyedPackLane(keySpaceId), floor, buckets, take];
  const [row] = await db.query<{ count: number }>(OPEN_KEYED, values);
  return row?.count ?? 0;
}

export interface OpenedPacks {
  readonly count: number;
  /** The highest id of a pack. */
  readonly last: number;
  /** The highest claim order of a task in them, as a row. */
  readonly lastRow: number;
}

/** The first packs of the lane become rows that wait. */
export async function openWaitingPacks(
  db: Queryable,
  { lane, floor, take }: LaneRequest,
): Promise<OpenedPacks> {
  const [row] = await db.query<{
    count: number;
    last: string | null;
    last_row: string | null;
  }>(OPEN_WAITING, [lane, floor, take]);
  return {
    count: row?.count ?? 0,
    last: Number(row?.last ?? 0),
    lastRow: Number(row?.last_row ?? 0),
  };
}

/** A condition on `pack`, for the index of packs by ids. */
export const holdsTask = (id: string): string =>
  `int8range(pack.id, pack.last_id, '[]') @> ${id} AND ${id} = ANY (pack.ids)`;

const OPEN_FOR_TASK = open(
  "pack_open_for_task",
  `
     SELECT pack.id
       FROM {schema}.task_packs AS pack
      WHERE ${holdsTask("$1::bigint")}
        AND pack.tenant = COALESCE($2, pack.tenant)
        FOR UPDATE`,
  COUNT,
);

/** Whether the task was in a pack; it is a row now. */
export async function openPackOf(db: Queryable, taskId: string, tenant?: string): Promise<boolean> {
  const values = [taskId, tenant ?? null];
  const [row] = await db.query<{ count: number }>(OPEN_FOR_TASK, values);
  return (row?.count ?? 0) > 0;
}

// A pack that somebody opens meanwhile is gone when its lock is free, and its tasks are rows.
const OPEN_BY_TOKEN = open(
  "packs_open_by_token",
  `
     SELECT pack.id
       FROM {schema}.task_packs AS pack
      WHERE pack.claim_id IS NOT NULL
        AND pack.id = ANY (ARRAY(
              SELECT found.id
                FROM unnest($1::text::bigint[], $2::text::uuid[], $3::text[])
                     AS given(id, claim_id, tenant)
               CROSS JOIN LATERAL (
                 SELECT pack.id
                   FROM {schema}.task_packs AS pack
                  WHERE ${holdsTask("given.id")}
                    AND pack.claim_id = given.claim_id
                    AND pack.tenant = given.tenant
               ) AS found
               GROUP BY found.id))
      ORDER BY pack.id
        FOR UPDATE`,
  COUNT,
);

/** Packs in which these tasks are claimed become rows that run. Returns how many did. */
export async function openPacksByToken(
  db: Queryable,
  tokens: readonly { readonly taskId: string; readonly claimId: string; readonly tenant: string }[],
): Promise<number> {
  const [row] = await db.query<{ count: number }>(OPEN_BY_TOKEN, [
    `{${tokens.map(({ taskId }) => taskId).join(",")}}`,
    `{${tokens.map(({ claimId }) => claimId).join(",")}}`,
    tokens.map(({ tenant }) => tenant),
  ]);
  return row?.count ?? 0;
}

// Each found by its id: a subquery that locks is never joined in another way.
const ofClaims = (name: string, condition: string, locking: string): Statement =>
  open(
    name,
    `
     SELECT pack.id
       FROM (SELECT claim.claim_id, one.id
               FROM {schema}.task_claims AS claim
              CROSS JOIN LATERAL unnest(claim.pack_ids) AS one(id)
              WHERE claim.claim_id = ANY ($1::text::uuid[])
              ORDER BY one.id) AS held
      CROSS JOIN LATERAL (
        SELECT live.id
          FROM {schema}.task_packs AS live
         WHERE live.id = held.id AND live.claim_id = held.claim_id AND ${condition}
           ${locking}
      ) AS pack`,
    COUNT,
  );

// A pack that its holder has locked is not reaped.
const OPEN_LOST = ofClaims(
  "packs_open_lost",
  "live.lease_until <= NOW()",
  "FOR UPDATE SKIP LOCKED",
);

/** Packs of these claims whose lease has ended become rows, to be reaped as such. */
export async function openLostPacks(tx: Queryable, claimIds: readonly string[]): Promise<void> {
  await tx.query(OPEN_LOST, [`{${claimIds.join(",")}}`]);
}

const OPEN_OF_CLAIM = ofClaims("packs_open_of_claim", "TRUE", "FOR UPDATE");

/** All packs that the claim took become rows; waits for whoever opens one. */
export async function openPacksOfClaim(tx: Queryable, claimId: string): Promise<void> {
  await tx.query(OPEN_OF_CLAIM, [`{${claimId}}`]);
}
