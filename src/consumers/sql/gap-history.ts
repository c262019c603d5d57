import type { Queryable } from "../../db/database.ts";
import { statement } from "../../db/statement.ts";

// Along the index of the consumer: a history of millions costs no more.
const HISTORY = statement(
  "consumer_gap_history",
  `SELECT skip.gap_position, skip.skip_to_position, skip.worker_id, skip.created_at,
          GREATEST(0, extract(epoch FROM skip.created_at - skip.first_seen_at))::float8
            AS open_seconds,
          evidence.how, evidence.missing, evidence.ceiling, evidence.fence::text AS fence,
          evidence.reason
     FROM {consumer_gap_skips} AS skip
     LEFT JOIN {schema}.gap_evidence AS evidence ON evidence.skip_id = skip.id
    WHERE skip.consumer_name = $1
    ORDER BY skip.created_at DESC, skip.id DESC
    LIMIT $2`,
);

/** Positions that a consumer crossed, and why that was right. Members of Go have no evidence. */
export interface CrossedGap {
  readonly position: string;
  readonly to: string;
  readonly at: Date;
  readonly openSeconds: number;
  readonly workerId: string;
  readonly how: "epoch" | "lockers" | "person" | "unsafe-time" | undefined;
  readonly missing: string | undefined;
  readonly ceiling: string | undefined;
  readonly fence: string | undefined;
  readonly reason: string | undefined;
}

interface GapRow {
  readonly gap_position: string;
  readonly skip_to_position: string;
  readonly worker_id: string;
  readonly created_at: Date;
  readonly open_seconds: number;
  readonly how: "epoch" | "lockers" | "person" | "unsafe-time" | null;
  readonly missing: string | null;
  readonly ceiling: string | null;
  readonly fence: string | null;
  readonly reason: string | null;
}

/** The last ones of a consumer, or of one partition, newest first. */
export async function readGapHistory(
  db: Queryable,
  partition: string,
  limit: number,
): Promise<CrossedGap[]> {
  const rows = await db.query<GapRow>(HISTORY, [partition, limit]);
  return rows.map((row) => ({
    position: row.gap_position,
    to: row.skip_to_position,
    at: row.created_at,
    openSeconds: row.open_seconds,
    workerId: row.worker_id,
    how: row.how ?? undefined,
    missing: row.missing ?? undefined,
    ceiling: row.ceiling ?? undefined,
    fence: row.fence ?? undefined,
    reason: row.reason ?? undefined,
  }));
}
