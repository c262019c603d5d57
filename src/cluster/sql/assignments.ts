import type { Connection, Queryable } from "../../db/database.ts";
import { setLockTimeout } from "../../db/sql/session.ts";
import { statement } from "../../db/statement.ts";

const REGISTER = statement(
  "assignments_register",
  `INSERT INTO {consumer_assignments} (consumer_name)
   SELECT name FROM unnest($1::text[]) AS name
       ON CONFLICT DO NOTHING`,
);

export async function registerAssignments(db: Queryable, names: readonly string[]): Promise<void> {
  await db.query(REGISTER, [[...names]]);
}

const ALL = statement(
  "assignments_all",
  "SELECT consumer_name, worker_id FROM {consumer_assignments}",
);

export async function readAssignments(db: Queryable): Promise<Map<string, string | undefined>> {
  const rows = await db.query<{ consumer_name: string; worker_id: string | null }>(ALL);
  return new Map(rows.map((row) => [row.consumer_name, row.worker_id ?? undefined]));
}

const MINE = statement(
  "assignments_mine",
  "SELECT consumer_name FROM {consumer_assignments} WHERE worker_id = $1",
);

export async function readAssignmentsOf(db: Queryable, workerId: string): Promise<string[]> {
  const rows = await db.query<{ consumer_name: string }>(MINE, [workerId]);
  return rows.map((row) => row.consumer_name);
}

export interface OwnerChange {
  readonly consumer: string;
  readonly from: string | undefined;
  readonly to: string | undefined;
}

/** Who may write as leader, and under which term. */
export interface LeaderTerm {
  readonly term: bigint;
  readonly leaderId: string;
}

// The term row is locked to the end of the transaction: a new leader raises the term only after
// this write has ended, and a write that begins after that finds another term and does nothing.
// Rows held by a running batch are skipped here, so that one long batch delays no other move.
const MOVE = statement(
  "assignments_move",
  `WITH term AS MATERIALIZED (
     SELECT 1 FROM {schema}.leader_term
      WHERE id = 1 AND term = $1 AND leader_id = $2
        FOR SHARE
   ), free AS MATERIALIZED (
     SELECT row.consumer_name, change.owner
       FROM {consumer_assignments} AS row
       JOIN unnest($3::text[], $4::uuid[], $5::uuid[]) AS change(name, expected, owner)
         ON change.name = row.consumer_name
      WHERE row.worker_id IS NOT DISTINCT FROM change.expected
      ORDER BY row.consumer_name
        FOR UPDATE OF row SKIP LOCKED
   )
   UPDATE {consumer_assignments} AS row
      SET worker_id = free.owner, updated_at = NOW()
     FROM free, term
    WHERE row.consumer_name = free.consumer_name
   RETURNING row.consumer_name`,
);

/** The names that moved. Missing ones are busy, or were changed by someone else. */
export async function moveFreeAssignments(
  db: Queryable,
  { term, leaderId }: LeaderTerm,
  changes: readonly OwnerChange[],
): Promise<string[]> {
  const rows = await db.query<{ consumer_name: string }>(MOVE, [
    String(term),
    leaderId,
    changes.map((change) => change.consumer),
    changes.map((change) => change.from ?? null),
    changes.map((change) => change.to ?? null),
  ]);
  return rows.map((row) => row.consumer_name);
}

// Waits in the row's lock queue, ahead of the owner's next batch, so a busy owner cannot keep it.
const MOVE_BUSY = statement(
  "assignment_move_busy",
  `WITH term AS MATERIALIZED (
     SELECT 1 FROM {schema}.leader_term
      WHERE id = 1 AND term = $1 AND leader_id = $2
        FOR SHARE
   )
   UPDATE {consumer_assignments} AS row
      SET worker_id = $5, updated_at = NOW()
     FROM term
    WHERE row.consumer_name = $3
      AND row.worker_id IS NOT DISTINCT FROM $4::uuid
   RETURNING row.consumer_name`,
);

export async function moveBusyAssignment(
  tx: Connection,
  { term, leaderId }: LeaderTerm,
  change: OwnerChange,
  lockTimeoutMs: number,
): Promise<boolean> {
  await setLockTimeout(tx, lockTimeoutMs);
  const { consumer, from = null, to = null } = change;
  const rows = await tx.query(MOVE_BUSY, [String(term), leaderId, consumer, from, to]);
  return rows.length === 1;
}

const RELEASE = statement(
  "assignment_release",
  `UPDATE {consumer_assignments}
      SET worker_id = NULL, updated_at = NOW()
    WHERE consumer_name = $1 AND worker_id = $2
   RETURNING consumer_name`,
);

/** Gives a consumer back. False when somebody else owns it already. */
export async function releaseAssignment(
  db: Queryable,
  consumer: string,
  workerId: string,
): Promise<boolean> {
  const rows = await db.query(RELEASE, [consumer, workerId]);
  return rows.length === 1;
}
