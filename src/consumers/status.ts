import type { Database } from "../db/database.ts";
import { readCeiling } from "../db/sql/epoch.ts";
import { readLatestPosition } from "../events/sql/read.ts";
import { closedBy } from "./frontier.ts";
import { type ConsumerRow, listConsumers, PARKED_MAX } from "./sql/admin.ts";
import { type FrontierHolder, observe, openEpoch, readFrontierHolders } from "./sql/frontier.ts";
import { readLeader, readMissingPositions, readNow, readWorkers } from "./sql/status.ts";

export interface WorkerStatus {
  readonly id: string;
  readonly status: "active" | "draining" | "stopped" | "dead";
  readonly host: string | undefined;
  readonly pid: number | undefined;
  readonly version: string | undefined;
  readonly heartbeatAgeSeconds: number;
  readonly startedAt: Date | undefined;
  /** When it stopped, or was found dead. */
  readonly endedAt: Date | undefined;
  readonly isLeader: boolean;
  /** Partitions assigned to it. */
  readonly assigned: readonly string[];
  readonly load: Readonly<Record<string, unknown>>;
}

export interface ConsumerStatus {
  /** The consumer, or one partition of it as "consumer/index". */
  readonly name: string;
  readonly checkpoint: bigint;
  /** Positions between the checkpoint and the newest visible event, holes included. */
  readonly lag: bigint;
  /** The age of the first event that it has not passed; undefined at the end of the log. */
  readonly lagSeconds: number | undefined;
  readonly workerId: string | undefined;
  readonly state: "running" | "unassigned" | "paused" | "quarantined";
  readonly reason: string | undefined;
  /** Why it is quarantined. */
  readonly poison:
    | {
        readonly position: bigint;
        readonly eventId: string | undefined;
        readonly error: string | undefined;
        readonly stack: string | undefined;
        readonly failures: number;
        readonly since: Date | undefined;
      }
    | undefined;
  /** Both are counted up to 10,000. */
  readonly parkedStreams: number;
  readonly parkedEvents: number;
  /** Whether counting events ended there: there may be more, and of streams if both are equal. */
  readonly isParkedCut: boolean;
}

export interface GapStatus {
  /** Missing positions that an unfinished append may still fill; at most 20. */
  readonly positions: readonly bigint[];
  /** Transactions older than the look, oldest first: one of them holds the gap. */
  readonly holders: readonly FrontierHolder[];
}

export interface Status {
  /** When it was looked, by the clock of the database, as all instants and ages in it are. */
  readonly at: Date;
  readonly latestPosition: bigint;
  readonly leader: { readonly term: bigint; readonly workerId: string | undefined };
  readonly workers: readonly WorkerStatus[];
  readonly consumers: readonly ConsumerStatus[];
  readonly openGaps: GapStatus;
}

/** Everything a person asks first, read from the tables: no worker needs to be reachable. */
export async function readStatus(db: Database, sequence: string): Promise<Status> {
  const [at, rows, workers, leader] = [
    await readNow(db),
    await listConsumers(db),
    await readWorkers(db),
    await readLeader(db),
  ];
  const consumers = rows.map(toConsumerStatus);
  const leaderId = leader?.leader_id ?? undefined;
  return {
    at,
    latestPosition: rows[0] === undefined ? await readLatestPosition(db) : BigInt(rows[0].latest),
    leader: { term: BigInt(leader?.term ?? 0), workerId: leaderId },
    workers: workers.map((worker) => ({
      id: worker.worker_id,
      status: worker.status,
      host: worker.host ?? undefined,
      pid: worker.pid ?? undefined,
      version: worker.version ?? undefined,
      heartbeatAgeSeconds: worker.heartbeat_age,
      startedAt: worker.started_at ?? undefined,
      endedAt: worker.ended_at ?? undefined,
      isLeader: worker.worker_id === leaderId,
      assigned: consumers.filter((one) => one.workerId === worker.worker_id).map((one) => one.name),
      load: worker.load ?? {},
    })),
    consumers,
    openGaps: await readOpenGaps(db, sequence, consumers),
  };
}

export function toConsumerStatus(row: ConsumerRow): ConsumerStatus {
  const checkpoint = BigInt(row.last_position);
  const latest = BigInt(row.latest);
  return {
    name: row.name,
    checkpoint,
    lag: latest > checkpoint ? latest - checkpoint : 0n,
    lagSeconds: row.lag_seconds ?? undefined,
    workerId: row.worker_id ?? undefined,
    state: row.state ?? (row.worker_id === null ? "unassigned" : "running"),
    reason: row.reason ?? undefined,
    poison:
      row.position === null
        ? undefined
        : {
            position: BigInt(row.position),
            eventId: row.event_id ?? undefined,
            error: row.error ?? undefined,
            stack: row.stack ?? undefined,
            failures: row.failures ?? 0,
            since: row.since ?? undefined,
          },
    parkedStreams: row.parked_streams,
    parkedEvents: row.parked_events,
    isParkedCut: row.parked_events === PARKED_MAX,
  };
}

/** One epoch, looked at once: if it closes, nothing is open. */
async function readOpenGaps(
  db: Database,
  sequence: string,
  consumers: readonly ConsumerStatus[],
): Promise<GapStatus> {
  return await db.withConnection(async (connection) => {
    const epoch = await openEpoch(connection, await readCeiling(connection, sequence), true);
    if (closedBy(epoch, await observe(connection, true)) !== undefined) {
      return { positions: [], holders: [] };
    }
    const lowest = consumers.reduce<bigint | undefined>(
      (low, { checkpoint }) => (low === undefined || checkpoint < low ? checkpoint : low),
      undefined,
    );
    const positions = await readMissingPositions(connection, lowest ?? 0n, epoch.ceiling);
    const holders =
      positions.length === 0 ? [] : await readFrontierHolders(connection, epoch.fence);
    return { positions, holders };
  });
}
