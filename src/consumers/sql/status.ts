import type { Queryable } from "../../db/database.ts";
import { statement } from "../../db/statement.ts";

const NOW = statement("status_now", "SELECT NOW() AS at");

export async function readNow(db: Queryable): Promise<Date> {
  const [row] = await db.query<{ at: Date }>(NOW);
  if (row === undefined) throw new Error("the database did not say what time it is");
  return row.at;
}

const WORKERS = statement(
  "status_workers",
  `SELECT COALESCE(info.worker_id, node.worker_id) AS worker_id,
          COALESCE(info.status, 'active') AS status,
          info.host, info.pid, info.version, info.capabilities, info.load,
          info.started_at, info.ended_at,
          extract(epoch FROM NOW() - COALESCE(node.heartbeat_at, info.last_seen_at))::float8
            AS heartbeat_age
     FROM {worker_nodes} AS node
     FULL JOIN {schema}.worker_info AS info ON info.worker_id = node.worker_id
    ORDER BY info.started_at NULLS FIRST, worker_id`,
);

export interface WorkerRow {
  readonly worker_id: string;
  readonly status: "active" | "draining" | "stopped" | "dead";
  readonly host: string | null;
  readonly pid: number | null;
  readonly version: string | null;
  readonly capabilities: string[] | null;
  readonly load: Readonly<Record<string, unknown>> | null;
  readonly started_at: Date | null;
  readonly ended_at: Date | null;
  readonly heartbeat_age: number;
}

export async function readWorkers(db: Queryable): Promise<WorkerRow[]> {
  return await db.query<WorkerRow>(WORKERS);
}

const LEADER = statement(
  "status_leader",
  "SELECT term, leader_id, acquired_at FROM {schema}.leader_term WHERE id = 1",
);

export interface LeaderRow {
  readonly term: string;
  readonly leader_id: string | null;
  readonly acquired_at: Date;
}

export async function readLeader(db: Queryable): Promise<LeaderRow | undefined> {
  const [row] = await db.query<LeaderRow>(LEADER);
  return row;
}

// Bounded: a person wants the first holes, not all.
const MISSING = statement(
  "status_missing_positions",
  `SELECT gap.position
     FROM generate_series($1::bigint + 1, LEAST($2::bigint, $1::bigint + 10000)) AS gap(position)
    WHERE NOT EXISTS (SELECT FROM {events} WHERE global_position = gap.position)
    ORDER BY gap.position
    LIMIT 20`,
);

export async function readMissingPositions(
  db: Queryable,
  after: bigint,
  upTo: bigint,
): Promise<bigint[]> {
  const rows = await db.query<{ position: string }>(MISSING, [String(after), String(upTo)]);
  return rows.map((row) => BigInt(row.position));
}
