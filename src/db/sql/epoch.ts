import type { Queryable } from "../database.ts";
import { statement } from "../statement.ts";

const CEILING = statement(
  "frontier_ceiling",
  "SELECT COALESCE(pg_sequence_last_value($1::regclass), 0) AS ceiling",
);

// A durable write, not a bare pg_current_xact_id(): when a backend crashes, an unlogged id and the
// sequence can both rewind below the ceiling and be handed out again. Its commit flushes the WAL
// that carries the sequence. A role that commits asynchronously is overruled for this statement.
const FENCE = statement(
  "frontier_fence",
  `UPDATE {schema}.frontier_fence
      SET drawn_at = clock_timestamp()
    WHERE id = 1
      AND (current_setting('synchronous_commit') <> 'off'
           OR set_config('synchronous_commit', 'local', true) IS NOT NULL)
   RETURNING pg_current_xact_id()::text AS fence`,
);

/** The last number of the sequence handed out to anybody. */
export async function readCeiling(db: Queryable, sequence: string): Promise<bigint> {
  const [row] = await db.query<{ ceiling: string }>(CEILING, [sequence]);
  return BigInt(row?.ceiling ?? 0);
}

/** Drawn after the ceiling was read: whoever got a number below it has an older transaction id. */
export async function drawFence(db: Queryable): Promise<bigint> {
  const [row] = await db.query<{ fence: string }>(FENCE);
  if (row === undefined) throw new Error("frontier_fence has no row");
  return BigInt(row.fence);
}
