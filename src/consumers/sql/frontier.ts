import type { Queryable } from "../../db/database.ts";
import { drawFence } from "../../db/sql/epoch.ts";
import { statement } from "../../db/statement.ts";
import type { Epoch, Observation } from "../frontier.ts";

const APPENDED_TABLES = `
        SELECT '{stream_heads}'::regclass
         UNION ALL
        SELECT relid FROM pg_partition_tree('{events}'::regclass)
         UNION ALL
        SELECT '{events}'::regclass`;

// Holders of the lock that every append takes on the heads or on the log before it draws a
// position. Readable by every role, unlike pg_stat_activity.
const LOCKERS = statement(
  "frontier_lockers",
  `SELECT DISTINCT lock.virtualtransaction AS locker
     FROM pg_locks AS lock
    WHERE lock.locktype = 'relation'
      AND lock.mode = 'RowExclusiveLock'
      AND lock.granted
      AND lock.pid IS DISTINCT FROM pg_backend_pid()
      AND lock.database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND lock.relation IN (${APPENDED_TABLES})`,
);

async function readLockers(db: Queryable): Promise<Set<string>> {
  const rows = await db.query<{ locker: string }>(LOCKERS);
  return new Set(rows.map((row) => row.locker));
}

/** The order is the proof: the ceiling was read before, then the fence, then the lockers. */
export async function openEpoch(
  db: Queryable,
  ceiling: bigint,
  withLockers: boolean,
): Promise<Epoch> {
  const epoch = { ceiling, fence: await drawFence(db) };
  return withLockers ? { ...epoch, lockers: await readLockers(db) } : epoch;
}

const OLDEST_RUNNING = statement(
  "frontier_oldest_running",
  "SELECT pg_snapshot_xmin(pg_current_snapshot())::text AS oldest_running",
);

/** Rows that are to be judged by it must be read by a later statement. */
export async function observe(db: Queryable, withLockers: boolean): Promise<Observation> {
  const [row] = await db.query<{ oldest_running: string }>(OLDEST_RUNNING);
  const oldestRunning = BigInt(row?.oldest_running ?? 0);
  return withLockers ? { oldestRunning, lockers: await readLockers(db) } : { oldestRunning };
}

// Those that hold the append's lock come first: writers that are only older hold an epoch, not a
// gap, and there may be many of them.
const HOLDERS = statement(
  "frontier_holders",
  `SELECT pid, "user", application, state, age, query
     FROM (
       SELECT activity.pid, activity.usename AS "user",
              activity.application_name AS application, activity.state,
              extract(epoch FROM clock_timestamp() - activity.xact_start)::float8 AS age,
              left(activity.query, 200) AS query,
              EXISTS (
                SELECT FROM pg_locks AS lock
                 WHERE lock.pid = activity.pid
                   AND lock.locktype = 'relation'
                   AND lock.mode = 'RowExclusiveLock'
                   AND lock.database = activity.datid
                   AND activity.datname = current_database()
                   AND lock.relation IN (${APPENDED_TABLES})) AS appends
         FROM pg_stat_activity AS activity
        WHERE activity.backend_xid IS NOT NULL
          AND activity.pid <> pg_backend_pid()
          AND activity.backend_xid::text::bigint <= ($1::text::numeric % 4294967296)::bigint
        UNION ALL
       SELECT NULL, prepared.owner, prepared.gid, 'prepared',
              extract(epoch FROM clock_timestamp() - prepared.prepared)::float8, NULL,
              prepared.database = current_database()
         FROM pg_prepared_xacts AS prepared
     ) AS holder
    ORDER BY appends DESC, age DESC NULLS LAST
    LIMIT 5`,
);

/** A transaction that may be keeping the frontier from moving. */
export interface FrontierHolder {
  /** Null for a prepared transaction. */
  readonly pid: number | null;
  readonly user: string | null;
  /** application_name, or the gid of a prepared transaction. */
  readonly application: string | null;
  readonly state: string | null;
  readonly ageSeconds: number;
  readonly query: string | null;
}

export async function readFrontierHolders(db: Queryable, fence: bigint): Promise<FrontierHolder[]> {
  const rows = await db.query<Omit<FrontierHolder, "ageSeconds"> & { age: number | null }>(
    HOLDERS,
    [String(fence)],
  );
  return rows.map(({ age, ...holder }) => ({ ...holder, ageSeconds: age ?? 0 }));
}
