import type { Store, Table } from "./store.ts";

/** Milliseconds since 1970, by the server's clock. */
export type Instant = number;

export interface WorkerNode {
  readonly workerId: string;
  readonly heartbeatAt: Instant;
}
export interface WorkerInfo {
  readonly workerId: string;
  readonly status: "active" | "draining" | "stopped" | "dead";
  readonly capabilities: readonly string[];
  readonly queues: readonly string[];
  readonly lastSeenAt: Instant;
  readonly endedAt: Instant | null;
}
export interface Assignment {
  readonly consumerName: string;
  readonly workerId: string | null;
}
export interface LeaderLease {
  readonly leaseKey: string;
  readonly leaderId: string | null;
  readonly expiresAt: Instant;
}
export interface LeaderTermRow {
  readonly id: 1;
  readonly term: number;
  readonly leaderId: string | null;
}
export interface ChangesRow {
  readonly id: 1;
  readonly version: number;
}
export interface KeySpaceRow {
  readonly id: number;
  readonly name: string;
}
export interface QueueRow {
  readonly name: string;
  readonly keySpaceId: number;
  readonly settings: { readonly maxLosses?: number; readonly onFailure?: string };
  readonly limits: object;
}
export interface LaneRow {
  readonly lane: number;
  readonly queue: string;
  readonly tenant: string;
  readonly priority: number;
}
export interface TaskRow {
  readonly id: number;
  readonly claimOrder: number | null;
  readonly createdAt: Instant;
  readonly runAt: Instant;
  readonly lane: number;
  readonly maxAttempts: number;
  readonly priority: number;
  readonly losses: number;
  readonly onProbation: boolean;
  readonly state: "scheduled" | "pending" | "running";
  readonly attempt: number;
  readonly generation: number;
  readonly claimId: string | null;
  readonly leasedBy: string | null;
  readonly leaseUntil: Instant | null;
  readonly tenant: string;
  readonly queue: string;
  readonly partitionKey: string | null;
  readonly payload: string;
}
export interface ClaimRow {
  readonly claimId: string;
  readonly workerId: string;
  readonly checkAt: Instant;
  readonly taskIds: readonly number[];
  readonly keyLanes: readonly number[] | null;
}
/** How a task ended: in the history, or dead. */
export interface EndRow {
  readonly taskId: number;
  readonly state: "completed" | "failed" | "cancelled" | "dead";
  readonly claimId: string | null;
  readonly generation: number;
  readonly attempt: number;
}
export interface HoldRow {
  readonly keySpaceId: number;
  readonly tenant: string;
  readonly partitionKey: string;
  readonly lane: number;
  readonly why: "retry" | "probation" | "paused" | "parked";
  readonly until: Instant | null;
  readonly taskId: number | null;
}
export interface OwnerRow {
  readonly keySpaceId: number;
  readonly workerId: string;
  readonly epoch: number;
  readonly buckets: readonly number[];
}
export interface MarkerRow {
  readonly single: true;
  readonly id: string;
}
export interface FenceRow {
  readonly id: 1;
  readonly drawnAt: Instant;
}

export interface Tables {
  readonly nodes: Table<WorkerNode>;
  readonly infos: Table<WorkerInfo>;
  readonly assignments: Table<Assignment>;
  readonly leases: Table<LeaderLease>;
  readonly terms: Table<LeaderTermRow>;
  readonly changes: Table<ChangesRow>;
  readonly keySpaces: Table<KeySpaceRow>;
  readonly queues: Table<QueueRow>;
  readonly lanes: Table<LaneRow>;
  readonly tasks: Table<TaskRow>;
  readonly claims: Table<ClaimRow>;
  readonly ends: Table<EndRow>;
  readonly holds: Table<HoldRow>;
  readonly owners: Table<OwnerRow>;
  readonly markers: Table<MarkerRow>;
  readonly fences: Table<FenceRow>;
}

/** The tables of the migrations, as far as what is simulated reads or writes them. */
export function makeTables(store: Store): Tables {
  return {
    nodes: store.table((row) => row.workerId),
    infos: store.table((row) => row.workerId),
    assignments: store.table((row) => row.consumerName),
    leases: store.table((row) => row.leaseKey),
    terms: store.table((row) => row.id),
    changes: store.table((row) => row.id),
    keySpaces: store.table((row) => row.name),
    queues: store.table((row) => row.name),
    lanes: store.table((row) => [row.queue, row.tenant, row.priority]),
    tasks: store.table((row) => row.id),
    claims: store.table((row) => row.claimId),
    ends: store.table((row) => [row.taskId, row.claimId]),
    holds: store.table((row) => [row.keySpaceId, row.tenant, row.partitionKey, row.why]),
    owners: store.table((row) => [row.keySpaceId, row.workerId]),
    markers: store.table((row) => row.single),
    fences: store.table((row) => row.id),
  };
}
