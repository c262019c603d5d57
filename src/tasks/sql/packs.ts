import type { Queryable } from "../../db/database.ts";
import { type Statement, statement } from "../../db/statement.ts";
import { bucketSet } from "./bucket-owners.ts";
import {
  FIELD,
  type GrantProof,
  grantsOf,
  isGranted,
  type LaneRequest,
  linesWanted,
} from "./claim.ts";
import { SEPARATOR, type TaskShape } from "./enqueue.ts";
import { tellOfPacks } from "./feed.ts";
import { packOrder, packsBehind } from "./pack-lane.ts";

/** Between packs in one text; JSON never holds it raw. */
const PACK_SEPARATOR = "\u001d";

/** The first id of a pack is its own. The trigger draws the transaction id before any number. */
const insert = (name: string, columns: string, values: string, given: string): Statement =>
  statement(
    name,
    `WITH inserted AS (
     INSERT INTO {schema}.task_packs
            (id, last_id, lane, queue, tenant, kind, priority, max_attempts, options, ids,
             payloads${columns})
     SELECT ids[1], ids[count], $3::int, $4, $5, $6, $7::smallint, $8::int, $9::text::jsonb,
            ids, payloads${values}
       FROM (SELECT pack.*,
                    ARRAY(SELECT nextval('{schema}.task_numbers')
                            FROM generate_series(1, pack.count)) AS ids
               FROM unnest(string_to_array($1::text, chr(29)), $2::text::int[]${given})
                    AS pack(payloads, count${columns})
             OFFSET 0) AS numbered
     RETURNING ids, id, last_id, tenant, queue
   ), tally AS (
     INSERT INTO {schema}.task_tally (queue, priority, amount)
     SELECT $4, $7::smallint, sum(count) FROM unnest($2::text::int[]) AS one(count)
   ),${tellOfPacks({ rows: "inserted", state: "'pending'", attempt: "0" })}
   SELECT string_agg(array_to_string(ids, ','), ',') AS ids FROM inserted`,
  );

const INSERT = insert("packs_insert", "", "", "");
const INSERT_KEYED = insert(
  "packs_insert_keyed",
  ", keys, buckets, bucket_set",
  ", keys, buckets::smallint[], bucket_set",
  `,
                           string_to_array($10::text, chr(29)),
                           string_to_array($11::text, chr(29)), $12::text::bit(360)[]`,
);

/** Tasks that wait as one row. */
export interface NewPack {
  readonly payloads: readonly string[];
  /** Of keyed tasks, each in its bucket. */
  readonly keys?: readonly string[];
  readonly buckets?: readonly number[];
}

/** Ids in the order of the packs and of the payloads in them. All have keys, or none has. */
export async function insertPacks(
  db: Queryable,
  packs: readonly NewPack[],
  shape: Omit<TaskShape, "shape" | "count">,
): Promise<string[]> {
  const isKeyed = packs[0]?.keys !== undefined;
  const [row] = await db.query<{ ids: string }>(isKeyed ? INSERT_KEYED : INSERT, [
    packs.map(({ payloads }) => payloads.join(SEPARATOR)).join(PACK_SEPARATOR),
    `{${packs.map(({ payloads }) => payloads.length).join(",")}}`,
    shape.lane,
    shape.queue,
    shape.tenant,
    shape.kind ?? null,
    shape.priority,
    shape.max_attempts,
    shape.options === undefined ? null : JSON.stringify(shape.options),
    ...(isKeyed ? keyedValues(packs) : []),
  ]);
  return row?.ids.split(",") ?? [];
}

/** As readPack() reads it. No text in it holds what separates them. */
export const PACK_FIELDS = `id, chr(31), lane, chr(31), max_attempts, chr(31),
                   (date_part('epoch', created_at) * 1000)::bigint, chr(31), kind, chr(31),
                   options, chr(31), array_to_string(ids, ','), chr(31), payloads`;

function keyedValues(packs: readonly NewPack[]): unknown[] {
  return [
    packs.map(({ keys }) => keys?.join(SEPARATOR) ?? "").join(PACK_SEPARATOR),
    packs.map(({ buckets }) => `{${buckets?.join(",")}}`).join(PACK_SEPARATOR),
    `{${packs.map(({ buckets }) => bucketSet(buckets ?? [])).join(",")}}`,
  ];
}

/** What a claim changes of a pack; not claimed before it was there, as in claim.ts. */
export const leasedTo = (claimId: string, workerId: string, seconds: string): string => `
            claim_id = ${claimId}::uuid,
            leased_by = ${workerId}::uuid,
            claimed_at = GREATEST(NOW(), pack.created_at),
            lease_until = NOW() + make_interval(secs => ${seconds}::float8)`;

const claim = (name: string, lines: string): Statement =>
  statement(
    name,
    `WITH ${lines}
   ), picked AS MATERIALIZED (
     SELECT array_agg(pick.id) AS ids, array_agg(pick.ctid) AS places
       FROM line
      CROSS JOIN LATERAL (
        SELECT ready.id, ready.ctid
          FROM {schema}.task_packs AS ready
         WHERE ${packsBehind("ready", "line.lane", "line.floor")}
           AND ready.claim_id IS NULL
         ORDER BY ${packOrder("ready")}
         LIMIT line.take
           FOR UPDATE SKIP LOCKED
      ) AS pick
   ), claimed AS (
     UPDATE {schema}.task_packs AS pack
        SET ${leasedTo("$1", "$2", "$3")}
      WHERE pack.ctid = ANY ((SELECT places FROM picked)::tid[])
        AND pack.claim_id IS NULL
     RETURNING pack.*
   ), ledger AS (
     INSERT INTO {schema}.task_claims (claim_id, worker_id, check_at, task_ids, pack_ids)
     SELECT $1::uuid, $2::uuid, NOW() + make_interval(secs => $3::float8),
            ARRAY(SELECT unnest(ids) FROM claimed), picked.ids
       FROM picked
      WHERE picked.ids IS NOT NULL
   ),${tellOfPacks({ rows: "claimed", state: "'running'", worker: "leased_by" })}
   SELECT string_agg(
            concat(${PACK_FIELDS}),
            chr(29)) AS packs,
          date_part('epoch', NOW() + make_interval(secs => $3::float8)) AS until
     FROM claimed`,
  );

const CLAIM = claim("packs_claim", `line AS MATERIALIZED (${linesWanted()}`);
// As of rows: what the claim relies on is compared, and locked, or it takes nothing.
const CLAIM_LIMITED = claim(
  "packs_claim_limited",
  `grants AS MATERIALIZED (${grantsOf("$7")}
   ), line AS MATERIALIZED (${linesWanted(isGranted("$7", "$8", "$9"))}`,
);

export interface PackClaimRequest {
  readonly claimId: string;
  readonly workerId: string;
  readonly leaseSeconds: number;
  /** Of the limits of their queues. Defaults to none. */
  readonly proofs?: readonly GrantProof[];
}

/** Packs as text, and until when all of them are leased. */
export interface ClaimedPacks {
  readonly packs: readonly string[];
  readonly until: Date;
}

export interface PackedPacks {
  readonly packs: string | null;
  readonly until: number;
}

export function unpackPacks(row: PackedPacks | undefined): ClaimedPacks {
  return {
    packs: row?.packs?.split(PACK_SEPARATOR) ?? [],
    until: new Date((row?.until ?? 0) * 1000),
  };
}

/** Takes waiting packs whole; `take` counts packs. In no particular order. */
export async function claimPacks(
  db: Queryable,
  { claimId, workerId, leaseSeconds, proofs = [] }: PackClaimRequest,
  lanes: readonly LaneRequest[],
): Promise<ClaimedPacks> {
  const values = [
    claimId,
    workerId,
    leaseSeconds,
    `{${lanes.map((one) => one.lane).join(",")}}`,
    `{${lanes.map((one) => one.floor).join(",")}}`,
    `{${lanes.map((one) => one.take).join(",")}}`,
  ];
  const limits = [
    proofs.map((one) => one.queue),
    proofs.map((one) => one.slots),
    proofs.map((one) => one.deadline),
  ];
  const [row] =
    proofs.length === 0
      ? await db.query<PackedPacks>(CLAIM, values)
      : await db.query<PackedPacks>(CLAIM_LIMITED, [...values, ...limits]);
  return unpackPacks(row);
}

/** A claimed pack, read from its text. */
export interface PackText {
  readonly id: string;
  readonly lane: number;
  readonly maxAttempts: number;
  readonly createdAtMs: number;
  readonly kind: string | undefined;
  readonly options: string | undefined;
  readonly ids: readonly string[];
  readonly payloads: readonly string[];
  /** Of keyed tasks. */
  readonly keyed: KeyedPackText | undefined;
}

interface KeyedPackText {
  readonly keys: readonly string[];
  readonly buckets: readonly string[];
  readonly queue: string;
  readonly tenant: string;
  readonly priority: number;
}

export function readPack(text: string): PackText {
  const [id = "", lane, maxAttempts, createdAtMs, kind, options, ids = "", payloads = "", ...more] =
    text.split(FIELD);
  const [keys = "", buckets = "", queue = "", tenant = "", priority] = more;
  return {
    id,
    lane: Number(lane),
    maxAttempts: Number(maxAttempts),
    createdAtMs: Number(createdAtMs),
    kind: kind || undefined,
    options: options || undefined,
    ids: ids.split(","),
    payloads: payloads.split(SEPARATOR),
    keyed:
      keys === ""
        ? undefined
        : {
            keys: keys.split(SEPARATOR),
            buckets: buckets.split(","),
            queue,
            tenant,
            priority: Number(priority),
          },
  };
}

/** A pack and the claim under which it is to be found. */
export interface PackToken {
  readonly id: string;
  readonly claimId: string;
}

/** What the database said of packs. What is in neither was opened, taken away or completed. */
export interface PackAnswer {
  readonly done: ReadonlySet<string>;
  /** Still as they were, but somebody had the row locked. */
  readonly locked: ReadonlySet<string>;
}

const GIVEN = `unnest($1::text::bigint[], $2::text::uuid[]) AS given(id, claim_id)`;

const tokens = (packs: readonly PackToken[]): string[] => [
  `{${packs.map((pack) => pack.id).join(",")}}`,
  `{${packs.map((pack) => pack.claimId).join(",")}}`,
];

/** Locked in the order of their ids. */
export const locked = (patience: "" | "SKIP LOCKED"): string => `
     SELECT pack.id
       FROM ${GIVEN}
       JOIN {schema}.task_packs AS pack ON pack.id = given.id AND pack.claim_id = given.claim_id
      ORDER BY pack.id
        FOR UPDATE OF pack ${patience}`;
/** Those that somebody else has locked are passed over. */
export const FREE = locked("SKIP LOCKED");

export const ANSWER = `
   SELECT pack.id::text AS id, pack.id IN (SELECT id FROM free) AS is_done
     FROM ${GIVEN}
     JOIN {schema}.task_packs AS pack ON pack.id = given.id AND pack.claim_id = given.claim_id`;

export async function askOfPacks(
  db: Queryable,
  one: Statement,
  packs: readonly PackToken[],
  more: readonly unknown[] = [],
): Promise<PackAnswer> {
  const rows = await db.query<{ id: string; is_done: boolean }>(one, [...tokens(packs), ...more]);
  const idsOf = (isDone: boolean): Set<string> =>
    new Set(rows.filter((row) => row.is_done === isDone).map((row) => row.id));
  return { done: idsOf(true), locked: idsOf(false) };
}

const COMPLETE = statement(
  "packs_complete",
  `WITH free AS MATERIALIZED (${FREE}
   ), done AS (
     DELETE FROM {schema}.task_packs AS pack
      USING free
      WHERE pack.id = free.id
     RETURNING pack.*
   ), history AS (
     INSERT INTO {schema}.task_history
            (state, result, id, created_at, run_at, claimed_at, claim_id, leased_by,
             lease_generation, attempt, max_attempts, priority, tenant, queue, kind, payload,
             options, partition_key)
     SELECT 'completed', one.result, one.id, done.created_at, done.created_at, done.claimed_at,
            done.claim_id, done.leased_by, 1, 1, done.max_attempts, done.priority, done.tenant,
            done.queue, done.kind, one.payload, done.options, one.key
       FROM done
       LEFT JOIN unnest($1::text::bigint[], string_to_array($3::text, chr(29), ''))
                 AS given(id, results) ON given.id = done.id AND given.results IS NOT NULL
      CROSS JOIN LATERAL unnest(done.ids, string_to_array(done.payloads, chr(30)),
                                string_to_array(given.results, chr(30), ''),
                                string_to_array(done.keys, chr(30)))
                 AS one(id, payload, result, key)
   ), tally AS (
     INSERT INTO {schema}.task_tally (queue, priority, amount)
     SELECT queue, priority, -sum(cardinality(ids)) FROM done GROUP BY queue, priority
   ), ledger AS (
     DELETE FROM {schema}.task_claims WHERE claim_id = ANY ($4::uuid[])
   ),${tellOfPacks({ rows: "done", state: "'completed'", worker: "leased_by" })}${ANSWER}`,
);

/** `results` are JSON, or "" for none, in the order of the pack's tasks; none at all when empty. */
export interface PackCompletion extends PackToken {
  readonly results: readonly string[];
}

/** Moves all their tasks to history. `endedClaims` leave the ledger. */
export async function completePacks(
  db: Queryable,
  packs: readonly PackCompletion[],
  endedClaims: readonly string[],
): Promise<PackAnswer> {
  const hasResults = packs.some((pack) => pack.results.length > 0);
  const results = packs.map((pack) => pack.results.join(SEPARATOR)).join(PACK_SEPARATOR);
  return await askOfPacks(db, COMPLETE, packs, [hasResults ? results : null, [...endedClaims]]);
}
