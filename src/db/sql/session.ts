import type { Queryable } from "../database.ts";
import { type Statement, statement } from "../statement.ts";

const SERVER = statement(
  "server_facts",
  `SELECT pg_is_in_recovery() AS in_recovery,
          current_setting('server_version_num')::int AS version,
          pg_backend_pid() AS pid`,
);

export interface ServerFacts {
  readonly inRecovery: boolean;
  readonly version: number;
  readonly pid: number;
}

export async function readServerFacts(db: Queryable): Promise<ServerFacts> {
  const [row] = await db.query<{ in_recovery: boolean; version: number; pid: number }>(SERVER);
  if (row === undefined) throw new Error("server_facts returned no row");
  return { inRecovery: row.in_recovery, version: row.version, pid: row.pid };
}

const NOTIFY = statement("notify", "SELECT pg_notify($1, $2)");

export async function notify(db: Queryable, channel: string, payload: string): Promise<void> {
  await db.query(NOTIFY, [channel, payload]);
}

const ALIVE = statement("connection_alive", "SELECT 1");

export async function checkAlive(db: Queryable): Promise<void> {
  await db.query(ALIVE);
}

const LOCK_TIMEOUT = statement("lock_timeout", "SELECT set_config('lock_timeout', $1, $2)");
const lockTimeout = (ms: number): string => `${Math.max(1, Math.round(ms))}ms`;

/** For the rest of the transaction: a lock that is not free by then is an error (55P03). */
export async function setLockTimeout(tx: Queryable, ms: number): Promise<void> {
  await tx.query(LOCK_TIMEOUT, [lockTimeout(ms), true]);
}

/** The same, for as long as the connection lasts. */
export async function setSessionLockTimeout(connection: Queryable, ms: number): Promise<void> {
  await connection.query(LOCK_TIMEOUT, [lockTimeout(ms), false]);
}

const BEGIN = statement("begin", "BEGIN ISOLATION LEVEL READ COMMITTED");
const COMMIT = statement("commit", "COMMIT");

/** The same for one statement, where a session keeps nothing: all is written at once. */
export async function queryWithLockTimeout<Row>(
  connection: Queryable,
  ms: number,
  [one, values]: readonly [Statement, readonly unknown[]],
): Promise<Row[]> {
  const [, , rows] = await Promise.all([
    connection.query(BEGIN),
    setLockTimeout(connection, ms),
    connection.query<Row>(one, values),
    connection.query(COMMIT),
  ]);
  return rows;
}

// On a table that was never analysed the planner may prefer to read all of it, and a prepared
// statement would keep that plan while the table grows by millions.
const shape = (name: string, isLocal: boolean) =>
  statement(
    name,
    `SELECT set_config('enable_seqscan', 'off', ${isLocal}),
            set_config('enable_bitmapscan', 'off', ${isLocal}),
            set_config('enable_hashjoin', 'off', ${isLocal}),
            set_config('enable_mergejoin', 'off', ${isLocal}),
            set_config('plan_cache_mode', 'force_generic_plan', ${isLocal}),
            set_config('jit', 'off', ${isLocal})`,
  );
const SHAPE_PLANS = shape("shape_plans", false);
const SHAPE_PLANS_HERE = shape("shape_plans_here", true);

/** For a connection that runs the hot statements only: plans by index, whatever statistics say. */
export async function shapePlans(db: Queryable): Promise<void> {
  await db.query(SHAPE_PLANS);
}

/** The same, to the end of the transaction. */
export async function shapePlansHere(tx: Queryable): Promise<void> {
  await tx.query(SHAPE_PLANS_HERE);
}
