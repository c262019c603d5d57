import type { Queryable } from "../../db/database.ts";
import { statement } from "../../db/statement.ts";

const TAKE = statement(
  "limits_take",
  "SELECT slots, starts, slice, retry_seconds FROM {schema}.take_limits($1, $2, $3, $4)",
);

export interface Taken {
  readonly slots: number;
  readonly starts: number;
  /** In which they were counted. */
  readonly slice: string | null;
  /** Seconds until more starts are allowed. Null: not known, or not held back by the rate. */
  readonly retrySeconds: number | null;
}

/** Up to so many more slots, and so many starts, of the queue for this worker. */
export async function takeLimits(
  db: Queryable,
  queue: string,
  workerId: string,
  want: { readonly slots: number; readonly starts: number },
): Promise<Taken> {
  const values = [queue, workerId, want.slots, want.starts];
  const [row] = await db.query<{
    slots: number;
    starts: number;
    slice: string | null;
    retry_seconds: number | null;
  }>(TAKE, values);
  return {
    slice: row?.slice ?? null,
    slots: row?.slots ?? 0,
    starts: row?.starts ?? 0,
    retrySeconds: row?.retry_seconds ?? null,
  };
}

const RETURN = statement("limits_return", "SELECT {schema}.return_limits($1, $2, $3, $4, $5)");

export async function returnLimits(
  db: Queryable,
  queue: string,
  workerId: string,
  back: { readonly slots: number; readonly starts: number; readonly slice: string | null },
): Promise<void> {
  await db.query(RETURN, [queue, workerId, back.slots, back.starts, back.slice]);
}

const FREE = statement("limits_free_lost", "SELECT {schema}.free_lost_limits($1) AS freed");

/** What workers held that are gone, and of which no claim is left. */
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
