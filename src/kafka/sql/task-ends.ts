import type { Queryable } from "../../db/database.ts";
import { statement } from "../../db/statement.ts";

/** Of positions. */
export const endSequence = (schema: string): string => `${schema}.task_ends_position_seq`;

export interface EndRow {
  readonly position: string;
  readonly task_id: string;
  readonly ended_at: Date;
  readonly created_at: Date;
  readonly claimed_at: Date | null;
  readonly worker_id: string | null;
  readonly attempt: number;
  readonly max_attempts: number;
  readonly priority: number;
  readonly state: "completed" | "failed" | "dead" | "cancelled";
  readonly cause: string | null;
  readonly tenant: string;
  readonly queue: string;
  readonly kind: string | null;
  readonly partition_key: string | null;
  readonly trace_parent: string | null;
  readonly content_type: string | null;
  readonly payload: string | null;
  readonly bytes: Buffer | null;
  readonly result: string | null;
  readonly reason: string | null;
}

// Large ones come alone; how large they are is known without reading them.
const READ = statement(
  "task_ends_read",
  `SELECT page.seen::int AS seen, page.position::text AS position, page.task_id::text AS task_id,
          page.ended_at, page.created_at, page.claimed_at, page.worker_id, page.attempt,
          page.max_attempts, page.priority, page.state, page.cause, page.tenant, page.queue,
          page.kind, page.partition_key, page.trace_parent, page.content_type, page.payload,
          page.bytes, page.result, page.reason
     FROM (SELECT one.*, count(*) OVER () AS seen,
                  sum(one.size) OVER (ORDER BY one.position) - one.size AS before
             FROM (SELECT ended.*,
                          500 + COALESCE(octet_length(ended.payload), 0)
                              + COALESCE(octet_length(ended.bytes), 0)
                              + COALESCE(octet_length(ended.result), 0)
                              + COALESCE(octet_length(ended.reason), 0) AS size
                     FROM {schema}.task_ends AS ended
                    WHERE ended.position > $1::bigint
                    ORDER BY ended.position
                    LIMIT $2) AS one) AS page
    WHERE page.before < $3::bigint
    ORDER BY page.position`,
);

export interface EndPage {
  readonly rows: readonly EndRow[];
  /** Whether there are more behind them. */
  readonly isCut: boolean;
}

/** What is visible behind a position, at least one end if there is any. */
export async function readEnds(
  db: Queryable,
  after: bigint,
  { rowsMax, bytesMax }: { readonly rowsMax: number; readonly bytesMax: number },
): Promise<EndPage> {
  const values = [String(after), rowsMax, bytesMax];
  const rows = await db.query<EndRow & { seen: number }>(READ, values);
  const seen = rows[0]?.seen ?? 0;
  return { rows, isCut: seen === rowsMax || rows.length < seen };
}

// Every statement that keeps ends has this lock until its transaction ends, and took it before it
// drew a position. Readable by every role.
const WRITERS = statement(
  "task_ends_writers",
  `SELECT DISTINCT lock.virtualtransaction AS writer
     FROM pg_locks AS lock
    WHERE lock.locktype = 'relation'
      AND lock.mode = 'RowExclusiveLock'
      AND lock.granted
      AND lock.pid IS DISTINCT FROM pg_backend_pid()
      AND lock.database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND lock.relation = '{schema}.task_ends'::regclass`,
);

/** Transactions that may have drawn a position and not committed yet. */
export async function readEndWriters(db: Queryable): Promise<Set<string>> {
  const rows = await db.query<{ writer: string }>(WRITERS);
  return new Set(rows.map(({ writer }) => writer));
}

const OLDEST_RUNNING = statement(
  "task_ends_oldest_running",
  "SELECT pg_snapshot_xmin(pg_current_snapshot())::text AS oldest_running",
);

/** Every transaction below it has ended. Rows that it judges are read by a later statement. */
export async function readOldestRunning(db: Queryable): Promise<bigint> {
  const [row] = await db.query<{ oldest_running: string }>(OLDEST_RUNNING);
  return BigInt(row?.oldest_running ?? 0);
}

// Positions of publications only grow, and a new one begins behind all of them.
const FORGET = statement(
  "task_ends_forget",
  `DELETE FROM {schema}.task_ends
    WHERE position <= (SELECT min(position) FROM {schema}.task_publications)
      AND position <= $1::bigint`,
);

/** Removes ends up to there that everybody has published. */
export async function forgetEnds(db: Queryable, upTo: bigint): Promise<void> {
  await db.query(FORGET, [String(upTo)]);
}
