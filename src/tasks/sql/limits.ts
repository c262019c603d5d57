import type { Queryable } from "../../db/database.ts";
import { statement } from "../../db/statement.ts";

const TAKE = statement(
  "limits_take",
  `SELECT slots, starts, slice, deadline, retry_seconds
     FROM {schema}.take_limits($1, $2, $3, $4, $5)`,
);

export interface Wanted {
  readonly slots: number;
  readonly starts: number;
  /** How long after they were counted a claim may use the starts. */
  readonly lateSeconds: number;
}

export interface Taken {
  readonly slots: number;
  readonly starts: number;
  /** In which they were counted. Null: there were none, or no rate counts them. */
  readonly slice: string | null;
  /** Seconds since 1970 until which a claim may use them. */
  readonly deadline: number | null;
  /** Seconds until more starts are allowed. Null: not known, or not held back by the rate. */
  readonly retrySeconds: number | null;
}

/** Up to so many more slots, and so many starts, of the queue for this worker. */
export async function takeLimits(
  db: Queryable,
  queue: string,
  workerId: string,
  want: Wanted,
): Promise<Taken> {
  const values = [queue, workerId, want.slots, want.starts, want.lateSeconds];
  const [row] = await db.query<{
    slots: number;
    starts: number;
    slice: string | null;
    deadline: number | null;
    retry_seconds: number | null;
  }>(TAKE, values);
  return {
    slots: row?.slots ?? 0,
    starts: row?.starts ?? 0,
    slice: row?.slice ?? null,
    deadline: row?.deadline ?? null,
    retrySeconds: row?.retry_seconds ?? null,
  };
}

const RETURN = statement("limits_return", "SELECT {schema}.return_limits($1, $2, $3)");

export async function returnLimits(
  db: Queryable,
  queue: string,
  workerId: string,
  slots: number,
): Promise<void> {
  await db.query(RETURN, [queue, workerId, slots]);
}

const BOOK = statement("limits_book", "SELECT {schema}.book_limits($1, $2) AS slots");

/** Slots for what the worker holds without, even beyond the limit. How many it has then. */
export async function bookLimits(db: Queryable, queue: string, workerId: string): Promise<number> {
  const [row] = await db.query<{ slots: number | null }>(BOOK, [queue, workerId]);
  return row?.slots ?? 0;
}

const USE = statement("limits_use", "SELECT {schema}.use_starts($1, $2, $3, $4, $5)");

export interface Usage {
  readonly used: number;
  readonly unused: number;
  /** Seconds since 1970 by which the claim had been made. Null: by now. */
  readonly usedBy: number | null;
}

/** What became of starts that were counted in the slice. Only after their claim was answered. */
export async function useStarts(
  db: Queryable,
  queue: string,
  slice: string,
  { used, unused, usedBy }: Usage,
): Promise<void> {
  await db.query(USE, [queue, slice, used, unused, usedBy]);
}

const FREE = statement("limits_free_lost", "SELECT {schema}.free_lost_limits($1) AS freed");

/** Slots of workers that are gone, but for tasks that stand under their claims. How many. */
export async function freeLostLimits(tx: Queryable, timeoutSeconds: number): Promise<number> {
  const [row] = await tx.query<{ freed: number }>(FREE, [timeoutSeconds]);
  return row?.freed ?? 0;
}

const GRANTS = statement(
  "limits_grants",
  "SELECT queue, slots FROM {schema}.limit_grants WHERE worker_id = $1",
);

/** Slots by queue that this worker holds. */
export async function readGrants(db: Queryable, workerId: string): Promise<Map<string, number>> {
  const rows = await db.query<{ queue: string; slots: number }>(GRANTS, [workerId]);
  return new Map(rows.map((row) => [row.queue, row.slots]));
}
