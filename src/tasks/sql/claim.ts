import type { Queryable } from "../../db/database.ts";
import { type Statement, statement } from "../../db/statement.ts";
import { MARKER } from "./crash-marker.ts";
import { SEPARATOR } from "./enqueue.ts";
import { tell } from "./feed.ts";
import { packOrder, packsBehind } from "./pack-lane.ts";

// A transaction that began before a task was due may see the task that has become due since, and
// must not write that it was claimed before it was.
const CLAIM_SET = `
        SET state = 'running',
            attempt = task.attempt + 1,
            lease_generation = task.lease_generation + 1,
            claim_id = $1::uuid,
            leased_by = $2::uuid,
            claimed_at = GREATEST(NOW(), task.run_at),
            lease_until = NOW() + make_interval(secs => $3::float8)`;

/** Between the fields of a claimed row; no field can hold it. */
export const FIELD = "\u001f";

const fields = (...expressions: string[]): string => expressions.join(", chr(31), ");
const ms = (column: string): string => `(date_part('epoch', task.${column}) * 1000)::bigint`;

// A claimed row is one text: thousands of rows of many columns cost the driver more than the claim
// costs the server, and every field in it costs the server as much as a tenth of the update. So
// what the lane tells, and what few tasks have, is left out. The payload comes last; how many
// fields are before it tells which were left out. claimed-row.ts reads it.
const PACKED = `concat(
            ${fields(
              "task.id",
              "task.lane",
              "NULLIF(task.claim_order, task.id)",
              "task.attempt",
              "NULLIF(task.lease_generation, task.attempt)",
              "task.max_attempts",
              ms("run_at"),
            )}, chr(31),
            CASE WHEN task.lane < 0 OR task.on_probation THEN concat(
              ${fields("task.queue", "task.tenant", "task.priority", "task.partition_key")},
              chr(31)) END,
            CASE WHEN task.created_at <> task.run_at
                   OR task.on_probation
                   OR task.kind IS NOT NULL
                   OR task.payload IS NULL
                   OR task.content_type IS NOT NULL
                   OR task.options IS NOT NULL THEN concat(
              ${fields(
                ms("created_at"),
                "task.on_probation",
                "task.kind",
                "task.content_type",
                "task.bytes",
                "task.options",
              )}, chr(31)) END,
            task.payload)`;

/**
 * The end of every claim. `picked` is one row of arrays: ids, and what the update finds rows by.
 * One row in the ledger tells the reaper where to look, and one text of rows comes back, with
 * whether the claim may have passed over tasks on its way.
 */
export const takePicked = (rows: string, keyLanes: string, hasPassed: string): string => `
   ledger AS (
     INSERT INTO {schema}.task_claims (claim_id, worker_id, check_at, task_ids, key_lanes)
     SELECT $1::uuid, $2::uuid, NOW() + make_interval(secs => $3::float8), picked.ids, ${keyLanes}
       FROM picked
      WHERE picked.ids IS NOT NULL
   ), claimed AS (
     UPDATE {schema}.tasks AS task ${CLAIM_SET}
      WHERE ${rows}
     RETURNING ${PACKED} AS packed, task.id, task.tenant, task.queue, task.attempt
   ),${tell({ rows: "claimed", state: "'running'", worker: "$2::uuid" })}
   SELECT string_agg(packed, chr(30)) AS rows,
          (SELECT cardinality(picked.ids) FROM picked) AS picked,
          ${hasPassed} AS has_passed,
          date_part('epoch', NOW() + make_interval(secs => $3::float8)) AS until
     FROM claimed`;

// A claim that a crash takes back was nobody's loss: its random id is never accepted again. So it
// need not wait for the disk.
export const LOSABLE = "set_config('synchronous_commit', 'off', true) IS NOT NULL";

/** Slots of limited queues that this worker relies on. Locked: nobody frees them meanwhile. */
export const grantsOf = (queues: string, workerId = "$2"): string => `
     SELECT queue, slots
       FROM {schema}.limit_grants
      WHERE worker_id = ${workerId}::uuid
        AND queue = ANY (${queues}::text[])
        FOR SHARE`;

/** Starts are counted when they are taken: a claim that comes later than that takes nothing. */
export const isGranted = (queues: string, slots: string, deadlines: string): string => `
              NOT EXISTS (
                SELECT FROM unnest(${queues}::text[], ${slots}::int[], ${deadlines}::float8[])
                            AS proof(queue, slots, deadline)
                  LEFT JOIN grants ON grants.queue = proof.queue
                 WHERE COALESCE(grants.slots, 0) < proof.slots
                    OR date_part('epoch', clock_timestamp()) >= proof.deadline)`;

/** The row of the queue is locked: a pause waits for the claims that did not see it. */
export const linesWanted = (...conditions: readonly string[]): string => `
     SELECT wanted.lane, wanted.floor, wanted.take
       FROM unnest($4::text::int[], $5::text::bigint[], $6::text::int[])
            AS wanted(lane, floor, take)
       JOIN {schema}.task_lanes AS known ON known.lane = wanted.lane
       JOIN {schema}.queues AS queue ON queue.name = known.queue
      WHERE ${["queue.paused_at IS NULL", LOSABLE, ...conditions].join(`
        AND `)}
        FOR KEY SHARE OF queue`;

// The arrays pin the plan: rows are picked one by one in the order of their lane, no more than
// asked for, and updated by their place. No column of an index changes, so the update is HOT.
const claim = (name: string, patience: string, locking: string): Statement =>
  statement(
    name,
    `WITH grants AS MATERIALIZED (${grantsOf("$7")}
   ), line AS MATERIALIZED (${linesWanted(patience, isGranted("$7", "$8", "$9"))}
   ), picked AS MATERIALIZED (
     SELECT array_agg(pick.id) AS ids, array_agg(pick.ctid) AS places
       FROM line
      CROSS JOIN LATERAL (
        SELECT ready.id, ready.ctid
          FROM {schema}.tasks AS ready
         WHERE ready.lane = line.lane
           AND ready.claim_order > line.floor
           AND ready.state = 'pending'
         ORDER BY ready.claim_order
         LIMIT line.take
         ${locking}
      ) AS pick
   ), ${takePicked(
     "task.ctid = ANY ((SELECT places FROM picked)::tid[]) AND task.state = 'pending'",
     "NULL",
     "FALSE",
   )}`,
  );

// Two claims that meet take different tasks when they lock what they pick, and the lock costs a
// sixth of the claim. Without it the later one waits for the other's end and finds its rows taken:
// as safe, and as good as long as nobody else claims there. Who has a row locked may also be no
// claim at all, but a transaction that stays open: such a claim fails soon, and the next one locks.
const CLAIM_ALONE = claim(
  "tasks_claim_alone",
  "set_config('lock_timeout', $10::text, true) IS NOT NULL",
  "",
);
const CLAIM_BESIDE_OTHERS = claim("tasks_claim", "TRUE", "FOR UPDATE SKIP LOCKED");
const WAIT_MS = 100;

export interface ClaimRequest {
  readonly claimId: string;
  readonly workerId: string;
  readonly leaseSeconds: number;
  readonly proofs: readonly GrantProof[];
}

export interface LaneClaimRequest extends ClaimRequest {
  /** Whether other workers are likely to claim from the same lanes right now. */
  readonly isBesideOthers: boolean;
  /** How long to wait for somebody who was not expected there. Defaults to 100. */
  readonly waitMs?: number;
}

/** What a claim of limited queues must find true, or it takes nothing. */
export interface GrantProof {
  readonly queue: string;
  readonly slots: number;
  /** Seconds since 1970 until which its starts count; null when they do not matter. */
  readonly deadline: number | null;
}

export interface LaneRequest {
  readonly lane: number;
  /** Nothing at or below it is pending. */
  readonly floor: number;
  readonly take: number;
}

export interface PackedRows {
  readonly rows: string | null;
  readonly picked: number | null;
  readonly has_passed: boolean;
  readonly until: number;
}

/** Rows as text, and until when all of them are leased. */
export interface ClaimedRows {
  readonly rows: readonly string[];
  /** Picked, but somebody else was first. */
  readonly missed: number;
  /** Whether tasks of held keys may have been passed over. */
  readonly hasPassed: boolean;
  readonly until: Date;
}

export function unpack([answer]: readonly PackedRows[]): ClaimedRows {
  const rows = answer?.rows?.split(SEPARATOR) ?? [];
  return {
    rows,
    missed: (answer?.picked ?? 0) - rows.length,
    hasPassed: answer?.has_passed ?? true,
    until: new Date((answer?.until ?? 0) * 1000),
  };
}

/** Takes pending tasks of unkeyed lanes. In no particular order. */
export async function claimTasks(
  db: Queryable,
  request: LaneClaimRequest,
  lanes: readonly LaneRequest[],
): Promise<ClaimedRows> {
  const { claimId, workerId, leaseSeconds, proofs, isBesideOthers, waitMs = WAIT_MS } = request;
  const values = [
    claimId,
    workerId,
    leaseSeconds,
    `{${lanes.map((one) => one.lane).join(",")}}`,
    `{${lanes.map((one) => one.floor).join(",")}}`,
    `{${lanes.map((one) => one.take).join(",")}}`,
    proofs.map((one) => one.queue),
    proofs.map((one) => one.slots),
    proofs.map((one) => one.deadline),
  ];
  const rows = isBesideOthers
    ? await db.query<PackedRows>(CLAIM_BESIDE_OTHERS, values)
    : await db.query<PackedRows>(CLAIM_ALONE, [...values, `${waitMs}ms`]);
  return unpack(rows);
}

// Lanes of rows, and those of packs that are known or have one. One snapshot: what it shows as
// running is what its rows are judged by. A claim that is open, and may yet be rolled back, still
// looks pending here.
const LOOK = statement(
  "lanes_look",
  `SELECT line.lane, line.queue, line.tenant, line.priority,
          head.claim_order,
          extract(epoch FROM NOW() - head.run_at)::float8 AS waited,
          pg_snapshot_xmin(pg_current_snapshot())::text AS oldest_running,
          ${MARKER} AS marker
     FROM {schema}.task_lanes AS line
     LEFT JOIN unnest($2::text::int[], $3::text::bigint[]) AS known(lane, floor)
       ON known.lane = line.lane
     LEFT JOIN LATERAL (
       SELECT ready.claim_order, ready.run_at
         FROM {schema}.tasks AS ready
        WHERE ready.lane = line.lane
          AND ready.claim_order > COALESCE(known.floor, 0)
          AND ready.state = 'pending'
        ORDER BY ready.claim_order
        LIMIT 1
     ) AS head ON TRUE
    WHERE line.queue = ANY ($1::text[])
    UNION ALL
   SELECT $4::int + line.lane, line.queue, line.tenant, line.priority, head.id,
          extract(epoch FROM NOW() - head.created_at)::float8,
          pg_snapshot_xmin(pg_current_snapshot())::text,
          ${MARKER}
     FROM {schema}.task_lanes AS line
     LEFT JOIN unnest($2::text::int[], $3::text::bigint[]) AS known(lane, floor)
       ON known.lane = $4::int + line.lane
     LEFT JOIN LATERAL (
       SELECT ready.id, ready.created_at
         FROM {schema}.task_packs AS ready
        WHERE ${packsBehind("ready", "line.lane", "COALESCE(known.floor, 0)")}
          AND ready.claim_id IS NULL
        ORDER BY ${packOrder("ready")}
        LIMIT 1
     ) AS head ON TRUE
    WHERE line.queue = ANY ($1::text[])
      AND line.priority >= 0
      AND (known.lane IS NOT NULL OR head.id IS NOT NULL)`,
);

/** Packs wait in lanes of their own, with the numbers of those of their tasks' rows and this. */
export const PACK_LANES = 2 ** 30;

export interface LaneView {
  readonly lane: number;
  readonly queue: string;
  readonly tenant: string;
  readonly priority: number;
  /** Of the first pending task; null when there is none. */
  readonly headOrder: number | null;
  /** Seconds since that task could have run. */
  readonly waitedSeconds: number;
}

export interface Look {
  readonly lanes: readonly LaneView[];
  readonly oldestRunning: bigint;
  /** Null: the server has crashed. */
  readonly marker: string | null;
}

/** The first pending task of every lane of these queues. Undefined: they have none. */
export async function lookAtLanes(
  db: Queryable,
  queues: readonly string[],
  floors: ReadonlyMap<number, number>,
): Promise<Look | undefined> {
  const rows = await db.query<{
    lane: number;
    queue: string;
    tenant: string;
    priority: number;
    claim_order: string | null;
    waited: number | null;
    oldest_running: string;
    marker: string | null;
  }>(LOOK, [
    [...queues],
    `{${[...floors.keys()].join(",")}}`,
    `{${[...floors.values()].join(",")}}`,
    PACK_LANES,
  ]);
  const [first] = rows;
  if (first === undefined) return undefined;
  return {
    lanes: rows.map((row) => ({
      lane: row.lane,
      queue: row.queue,
      tenant: row.tenant,
      priority: row.priority,
      headOrder: row.claim_order === null ? null : Number(row.claim_order),
      waitedSeconds: row.waited ?? 0,
    })),
    oldestRunning: BigInt(first.oldest_running),
    marker: first.marker,
  };
}

// A claim whose answer never came may still be running, and commit later. Its id is taken, so that
// its row in the ledger, and with it the claim, is refused; or this waits until it has committed.
// The row stays for longer than any statement does, and the reaper removes it.
const BAR = statement(
  "claim_bar",
  `INSERT INTO {schema}.task_claims (claim_id, worker_id, check_at, task_ids)
   VALUES ($1, $2, NOW() + INTERVAL '1 day', '{}')
       ON CONFLICT DO NOTHING
   RETURNING claim_id`,
);

/** True when the claim does not exist, and never will. */
export async function barClaim(db: Queryable, claimId: string, workerId: string): Promise<boolean> {
  return (await db.query(BAR, [claimId, workerId])).length === 1;
}

// Gives back what such a claim took, when it had committed.
const UNDO = statement(
  "tasks_undo_claim",
  `WITH taken AS MATERIALIZED (
     SELECT task.id
       FROM {schema}.task_claims AS claim
       JOIN {schema}.tasks AS task ON task.id = ANY (claim.task_ids)
      WHERE claim.claim_id = $1 AND task.claim_id = $1
      ORDER BY task.id
        FOR UPDATE OF task
   ), undone AS (
     UPDATE {schema}.tasks AS task
        SET state = 'pending',
            attempt = task.attempt - 1,
            claim_order = CASE WHEN task.partition_key IS NULL
                               THEN nextval('{schema}.task_numbers') ELSE task.claim_order END,
            claim_id = NULL, leased_by = NULL, claimed_at = NULL, lease_until = NULL
       FROM taken
      WHERE task.id = taken.id
     RETURNING task.id, task.tenant, task.queue, task.attempt
   ), ledger AS (
     DELETE FROM {schema}.task_claims WHERE claim_id = $1
   ),${tell({ rows: "undone", state: "'pending'", reason: "'the claim was taken back'" })}
   SELECT count(*)::int AS count FROM undone`,
);

export async function undoClaim(db: Queryable, claimId: string): Promise<number> {
  const [row] = await db.query<{ count: number }>(UNDO, [claimId]);
  return row?.count ?? 0;
}
