import type { Queryable } from "../../db/database.ts";
import { statement } from "../../db/statement.ts";

/** Whether the leader has not beaten for so many seconds; never for null. */
const isSilent = (seconds: string): string => `
          ${seconds}::float8 IS NOT NULL
      AND term.leader_id IS NOT NULL
      AND NOT EXISTS (
            SELECT FROM {worker_nodes} AS node
             WHERE node.worker_id = term.leader_id
               AND node.heartbeat_at >= NOW() - make_interval(secs => ${seconds}::float8))`;

const TRY_LOCK = statement(
  "leader_try_lock",
  `SELECT pg_try_advisory_lock($1::bigint) AS held,
          EXISTS (SELECT FROM {schema}.leader_term AS term WHERE ${isSilent("$2")}) AS is_silent,
          (SELECT extract(epoch FROM node.heartbeat_at - NOW())::float8 + $2::float8
             FROM {schema}.leader_term AS term
             JOIN {worker_nodes} AS node ON node.worker_id = term.leader_id) AS expires_in`,
);

export interface LockTried {
  readonly held: boolean;
  /** Whether whoever leads stopped beating. */
  readonly isSilent: boolean;
  /** Seconds until whoever leads is silent, unless it beats before; undefined if it never is. */
  readonly expiresInSeconds: number | undefined;
}

export async function tryLeaderLock(
  db: Queryable,
  key: bigint,
  timeoutSeconds: number | undefined,
): Promise<LockTried> {
  const values = [String(key), timeoutSeconds ?? null];
  const [row] = await db.query<{ held: boolean; is_silent: boolean; expires_in: number | null }>(
    TRY_LOCK,
    values,
  );
  return {
    held: row?.held === true,
    isSilent: row?.is_silent === true,
    expiresInSeconds: row?.expires_in ?? undefined,
  };
}

// The lock lives as long as its session, and the session of a process that was paused lives on. The
// heartbeat tells: whoever leads and has not beaten for so long has lost the lead, and its session
// is ended so that the lock is free.
const OUST = statement(
  "leader_oust",
  `SELECT pg_terminate_backend(lock.pid) AS ousted
     FROM {schema}.leader_term AS term
     JOIN pg_locks AS lock
       ON lock.locktype = 'advisory'
      AND lock.granted
      AND lock.objsubid = 1
      AND lock.classid::bigint = $1::bigint
      AND lock.objid::bigint = $2::bigint
      AND lock.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    WHERE ${isSilent("$3")}`,
);

/** Ends the session of a leader that stopped beating. True when there was one. */
export async function oustStaleLeader(
  db: Queryable,
  key: bigint,
  timeoutSeconds: number,
): Promise<boolean> {
  const high = String(BigInt.asUintN(32, key >> 32n));
  const low = String(BigInt.asUintN(32, key));
  const rows = await db.query<{ ousted: boolean }>(OUST, [high, low, timeoutSeconds]);
  return rows.some((row) => row.ousted);
}

const UNLOCK = statement("leader_unlock", "SELECT pg_advisory_unlock($1::bigint) AS released");

export async function releaseLeaderLock(db: Queryable, key: bigint): Promise<boolean> {
  const [row] = await db.query<{ released: boolean }>(UNLOCK, [String(key)]);
  return row?.released === true;
}

// Expiry is judged by the database clock only, so a skewed worker cannot steal or keep the lease.
const TAKE_LEASE = statement(
  "leader_take_lease",
  `INSERT INTO {worker_leader_election} AS lease (lease_key, leader_id, expires_at)
   VALUES ('leader', $1, NOW() + make_interval(secs => $2::float8))
       ON CONFLICT (lease_key)
       DO UPDATE SET leader_id = excluded.leader_id,
                     expires_at = excluded.expires_at,
                     updated_at = NOW()
             WHERE lease.leader_id = excluded.leader_id
                OR lease.leader_id IS NULL
                OR lease.expires_at < NOW()
   RETURNING leader_id`,
);

/** Takes or renews the lease. False when somebody else holds it. */
export async function takeLease(
  db: Queryable,
  workerId: string,
  ttlSeconds: number,
): Promise<boolean> {
  const rows = await db.query(TAKE_LEASE, [workerId, ttlSeconds]);
  return rows.length === 1;
}

const LEASE_LEFT = statement(
  "leader_lease_left",
  `SELECT extract(epoch FROM expires_at - NOW())::float8 AS seconds
     FROM {worker_leader_election}
    WHERE lease_key = 'leader'`,
);

/** How long whoever has the lease keeps it, unless it is renewed. */
export async function readLeaseLeft(db: Queryable): Promise<number> {
  const [row] = await db.query<{ seconds: number }>(LEASE_LEFT);
  return row?.seconds ?? 0;
}

const RELEASE_LEASE = statement(
  "leader_release_lease",
  `UPDATE {worker_leader_election}
      SET leader_id = NULL, expires_at = NOW() - INTERVAL '1 minute', updated_at = NOW()
    WHERE lease_key = 'leader' AND leader_id = $1
   RETURNING lease_key`,
);

export async function releaseLease(db: Queryable, workerId: string): Promise<boolean> {
  const rows = await db.query(RELEASE_LEASE, [workerId]);
  return rows.length === 1;
}

const BEGIN_TERM = statement(
  "leader_begin_term",
  `UPDATE {schema}.leader_term
      SET term = term + 1, leader_id = $1, acquired_at = NOW()
    WHERE id = 1
   RETURNING term`,
);

/** Waits for writes under the old term to end; none can begin afterwards. */
export async function beginTerm(db: Queryable, workerId: string): Promise<bigint> {
  const [row] = await db.query<{ term: string }>(BEGIN_TERM, [workerId]);
  if (row === undefined) throw new Error("leader_term has no row");
  return BigInt(row.term);
}

const END_TERM = statement(
  "leader_end_term",
  `UPDATE {schema}.leader_term
      SET leader_id = NULL
    WHERE id = 1 AND term = $1 AND leader_id = $2
   RETURNING term`,
);

export async function endTerm(db: Queryable, term: bigint, workerId: string): Promise<boolean> {
  const rows = await db.query(END_TERM, [String(term), workerId]);
  return rows.length === 1;
}

// Whoever is paused, or cut off, in the middle of a leader's write keeps the row, and nobody else
// can begin a term: after two seconds without a word the server ends that session. All writes of a
// leader are tried again.
const HOLD_TERM = statement(
  "leader_hold_term",
  `SELECT term FROM {schema}.leader_term
    WHERE id = 1 AND term = $1 AND leader_id = $2
      AND set_config('idle_in_transaction_session_timeout', '2s', true) IS NOT NULL
      FOR SHARE`,
);

/** True while this leader's term is the current one; then it stays so to the transaction's end. */
export async function holdTerm(tx: Queryable, term: bigint, workerId: string): Promise<boolean> {
  const rows = await tx.query(HOLD_TERM, [String(term), workerId]);
  return rows.length === 1;
}
