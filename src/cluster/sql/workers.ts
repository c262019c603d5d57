import type { Queryable } from "../../db/database.ts";
import { setLockTimeout } from "../../db/sql/session.ts";
import { statement } from "../../db/statement.ts";

const REMOVE_PATIENCE_MS = 200;

// Deleting a registration also frees its assignments and its lease, through the foreign keys.
// After a restart of the server every heartbeat is old: nobody could beat while it was down, so
// the workers get a while to return before their silence means anything.
const REMOVE_STALE = statement(
  "workers_remove_stale",
  `WITH gone AS (
     DELETE FROM {worker_nodes}
      WHERE heartbeat_at < NOW() - make_interval(secs => $1::float8)
        AND worker_id <> $2
        AND pg_postmaster_start_time() < NOW() - make_interval(secs => $1::float8 / 2)
     RETURNING worker_id
   ), marked AS (
     UPDATE {schema}.worker_info AS info
        SET status = 'dead', ended_at = COALESCE(ended_at, NOW())
       FROM gone
      WHERE info.worker_id = gone.worker_id
        AND info.status IN ('active', 'draining')
   )
   SELECT worker_id FROM gone`,
);

/**
 * Removes registrations that are older than that, but never `ownId`: who runs this is alive,
 * however late its heartbeat. Does not wait for a batch that a paused worker holds open: whoever
 * calls it has other things to do, and it is called again.
 */
export async function removeStaleWorkers(
  tx: Queryable,
  ageSeconds: number,
  ownId: string,
): Promise<string[]> {
  await setLockTimeout(tx, REMOVE_PATIENCE_MS);
  const rows = await tx.query<{ worker_id: string }>(REMOVE_STALE, [ageSeconds, ownId]);
  return rows.map((row) => row.worker_id);
}

const MARK_DEAD = statement(
  "workers_mark_dead",
  `UPDATE {schema}.worker_info AS info
      SET status = 'dead', ended_at = NOW()
    WHERE info.status IN ('active', 'draining')
      AND info.worker_id <> $2
      AND info.last_seen_at < NOW() - make_interval(secs => $1::float8)
      AND NOT EXISTS (
        SELECT FROM {worker_nodes} AS node
         WHERE node.worker_id = info.worker_id
           AND node.heartbeat_at >= NOW() - make_interval(secs => $1::float8))
   RETURNING info.worker_id`,
);

/** Marks workers whose heartbeat is too old, so that people see when they died. */
export async function markDeadWorkers(
  db: Queryable,
  ageSeconds: number,
  ownId: string,
): Promise<string[]> {
  const rows = await db.query<{ worker_id: string }>(MARK_DEAD, [ageSeconds, ownId]);
  return rows.map((row) => row.worker_id);
}

const FORGET = statement(
  "workers_forget",
  `DELETE FROM {schema}.worker_info
    WHERE ended_at < NOW() - make_interval(secs => $1::float8)`,
);

export async function forgetEndedWorkers(db: Queryable, ageSeconds: number): Promise<void> {
  await db.query(FORGET, [ageSeconds]);
}

const REGISTER = statement(
  "worker_register",
  `WITH node AS (
     INSERT INTO {worker_nodes} (worker_id) VALUES ($1) RETURNING worker_id
   )
   INSERT INTO {schema}.worker_info
          (worker_id, status, host, pid, version, capabilities, queues)
   SELECT worker_id, 'active', $2, $3, $4, $5::text[], $6::text[] FROM node`,
);

export interface Registration {
  readonly workerId: string;
  readonly host: string;
  readonly pid: number;
  readonly version: string;
  readonly capabilities: readonly string[];
  /** Queues whose tasks it runs, for every tenant. */
  readonly queues: readonly string[];
}

export async function insertWorker(db: Queryable, worker: Registration): Promise<void> {
  const { workerId, host, pid, version, capabilities, queues } = worker;
  await db.query(REGISTER, [workerId, host, pid, version, [...capabilities], [...queues]]);
}

const ADD_QUEUES = statement(
  "worker_add_queues",
  `UPDATE {schema}.worker_info
      SET queues = ARRAY(SELECT DISTINCT unnest(queues || $2::text[]))
    WHERE worker_id = $1 AND status IN ('active', 'draining')
   RETURNING worker_id`,
);

/** False when the worker is not registered any more. */
export async function addQueues(
  db: Queryable,
  workerId: string,
  queues: readonly string[],
): Promise<boolean> {
  return (await db.query(ADD_QUEUES, [workerId, [...queues]])).length === 1;
}

const REMOVE_QUEUES = statement(
  "worker_remove_queues",
  `UPDATE {schema}.worker_info
      SET queues = ARRAY(SELECT unnest(queues) EXCEPT SELECT unnest($2::text[]))
    WHERE worker_id = $1`,
);

/** Of a worker that is not registered any more there is nothing to remove. */
export async function removeQueues(
  db: Queryable,
  workerId: string,
  queues: readonly string[],
): Promise<void> {
  await db.query(REMOVE_QUEUES, [workerId, [...queues]]);
}

// Nobody else writes these rows, and each says everything of its tenant: writing one twice does no
// harm. Of a worker that was taken for dead there is nothing to say.
const SERVE = statement(
  "worker_serve",
  `WITH me AS MATERIALIZED (
     SELECT worker_id FROM {schema}.worker_info
      WHERE worker_id = $1 AND status IN ('active', 'draining')
   ), said AS MATERIALIZED (
     SELECT me.worker_id, one.tenant, one.queues, one.idle
       FROM me
      CROSS JOIN json_to_recordset($2::text::json)
              AS one(tenant TEXT, queues TEXT[], idle TEXT[])
   ), gone AS (
     DELETE FROM {schema}.worker_tenants AS served
      USING said
      WHERE served.worker_id = said.worker_id
        AND served.tenant = said.tenant
        AND cardinality(said.queues) = 0
   ), written AS (
     INSERT INTO {schema}.worker_tenants AS served (worker_id, tenant, queues, idle)
     SELECT worker_id, tenant, queues, idle FROM said WHERE cardinality(queues) > 0
         ON CONFLICT (worker_id, tenant) DO UPDATE
        SET queues = excluded.queues, idle = excluded.idle, updated_at = NOW()
   )
   SELECT worker_id FROM me`,
);

/** What a worker runs of one tenant from now on. */
export interface TenantService {
  readonly tenant: string;
  /** None: nothing any more. */
  readonly queues: readonly string[];
  /** Of these nobody has asked for a while. */
  readonly idle: readonly string[];
}

/** False when the worker is not registered any more. */
export async function writeService(
  db: Queryable,
  workerId: string,
  tenants: readonly TenantService[],
): Promise<boolean> {
  return (await db.query(SERVE, [workerId, JSON.stringify(tenants)])).length === 1;
}

const HEARTBEAT = statement(
  "worker_heartbeat",
  `WITH beat AS (
     UPDATE {worker_nodes}
        SET heartbeat_at = NOW(), updated_at = NOW()
      WHERE worker_id = $1
     RETURNING worker_id
   ), info AS (
     UPDATE {schema}.worker_info
        SET last_seen_at = NOW(), load = $2::text::jsonb, ended_at = NULL,
            status = CASE status WHEN 'dead' THEN $3 ELSE status END
      WHERE worker_id = (SELECT worker_id FROM beat)
   )
   SELECT worker_id FROM beat`,
);

/** False when the registration is gone. Whoever was taken for dead and beats is alive again. */
export async function beatHeart(
  db: Queryable,
  workerId: string,
  status: "active" | "draining",
  load: object,
): Promise<boolean> {
  const rows = await db.query(HEARTBEAT, [workerId, JSON.stringify(load), status]);
  return rows.length === 1;
}

const DRAIN = statement(
  "worker_drain",
  `UPDATE {schema}.worker_info
      SET status = 'draining'
    WHERE worker_id = $1 AND status = 'active'
   RETURNING worker_id`,
);

export async function markDraining(db: Queryable, workerId: string): Promise<boolean> {
  const rows = await db.query(DRAIN, [workerId]);
  return rows.length === 1;
}

const DEREGISTER = statement(
  "worker_deregister",
  `WITH gone AS (
     DELETE FROM {worker_nodes} WHERE worker_id = $1
   )
   UPDATE {schema}.worker_info
      SET status = 'stopped', ended_at = NOW(), last_seen_at = NOW()
    WHERE worker_id = $1 AND status IN ('active', 'draining')`,
);

export async function deleteWorker(db: Queryable, workerId: string): Promise<void> {
  await db.query(DEREGISTER, [workerId]);
}

// A worker without information of ours is a member of another program: it is never draining.
const LIVE = statement(
  "workers_live",
  `SELECT node.worker_id,
          info.capabilities,
          COALESCE(info.status, 'active') = 'active' AS is_active,
          extract(epoch FROM node.heartbeat_at - NOW())::float8 + $1::float8 AS expires_in
     FROM {worker_nodes} AS node
     LEFT JOIN {schema}.worker_info AS info ON info.worker_id = node.worker_id
    WHERE node.heartbeat_at >= NOW() - make_interval(secs => $1::float8)`,
);

export interface LiveWorker {
  readonly workerId: string;
  readonly capabilities: readonly string[] | undefined;
  /** False while it drains: it is given nothing more. */
  readonly isActive: boolean;
  /** Seconds until it counts as dead, unless it beats before. */
  readonly expiresInSeconds: number;
}

export async function readLiveWorkers(
  db: Queryable,
  timeoutSeconds: number,
): Promise<LiveWorker[]> {
  const rows = await db.query<{
    worker_id: string;
    capabilities: string[] | null;
    is_active: boolean;
    expires_in: number;
  }>(LIVE, [timeoutSeconds]);
  return rows.map((row) => ({
    workerId: row.worker_id,
    capabilities: row.capabilities ?? undefined,
    isActive: row.is_active,
    expiresInSeconds: row.expires_in,
  }));
}
