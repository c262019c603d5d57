/** What the server answers, as far as the pages read it. docs/reference/http.md has the rest. */

export const TASK_STATES = [
  "scheduled",
  "pending",
  "running",
  "completed",
  "failed",
  "dead",
  "cancelled",
] as const;
export type TaskState = (typeof TASK_STATES)[number];

export interface Me {
  readonly tenant: string;
  readonly subject: string;
  readonly scopes: readonly string[];
  readonly queues: "all" | readonly string[];
  readonly expiresAt?: string;
  readonly acts: readonly string[];
  readonly version: string;
  /** Those that only some servers have. */
  readonly pages?: readonly string[];
}

export interface Worker {
  readonly id: string;
  readonly status: "active" | "draining" | "stopped" | "dead";
  readonly host?: string;
  readonly pid?: number;
  readonly version?: string;
  readonly heartbeatAgeSeconds: number;
  readonly startedAt?: string;
  readonly endedAt?: string;
  readonly isLeader: boolean;
  readonly assigned: readonly string[];
  readonly load: Readonly<Record<string, unknown>>;
}

export interface Poison {
  readonly position: string;
  readonly eventId?: string;
  readonly error?: string;
  readonly stack?: string;
  readonly failures: number;
  readonly since?: string;
}

export interface Consumer {
  readonly name: string;
  readonly checkpoint: string;
  readonly lag: string;
  readonly lagSeconds?: number;
  readonly workerId?: string;
  readonly state: "running" | "unassigned" | "paused" | "quarantined";
  readonly reason?: string;
  readonly poison?: Poison;
  readonly parkedStreams: number;
  readonly parkedEvents: number;
  /** They are counted up to a bound: there may be more. */
  readonly isParkedCut: boolean;
}

export interface GapHolder {
  readonly pid: number | null;
  readonly user: string | null;
  readonly application: string | null;
  readonly state: string | null;
  readonly ageSeconds: number;
  readonly query: string | null;
}

export interface OpenGaps {
  readonly positions: readonly string[];
  readonly holders: readonly GapHolder[];
}

export interface Rate {
  readonly count: number;
  readonly seconds: number;
}

export interface Queue {
  readonly name: string;
  readonly isPaused: boolean;
  readonly pauseReason?: string;
  readonly limits: {
    readonly concurrency: number | null;
    readonly rate: Rate | null;
    readonly keyRate: Rate | null;
  };
  /** The rest is of all tenants, and told to admins only. */
  readonly keySpace?: string;
  readonly depths?: Readonly<Record<string, number>>;
  readonly running?: number;
  readonly dead?: number;
  /** They are counted up to a bound: there may be more. */
  readonly isDeadCut?: boolean;
  readonly oldestPendingSeconds?: number;
}

/** Whoever keeps the feed from going on. */
export interface FeedHeld {
  readonly seconds: number;
  readonly holders: readonly GapHolder[];
}

export interface FailingSchedule {
  readonly tenant: string;
  readonly name: string;
  readonly error: string;
}

export interface ClusterStatus {
  /** By the clock of the database, as all instants of it are. */
  readonly at: string;
  readonly latestPosition: string;
  readonly leader: { readonly term: string; readonly workerId?: string };
  readonly workers: readonly Worker[];
  readonly consumers: readonly Consumer[];
  readonly openGaps: OpenGaps;
  readonly queues: readonly Queue[];
  readonly failingSchedules: readonly FailingSchedule[];
  readonly feedHeld?: FeedHeld;
}

export interface Task {
  readonly id: string;
  readonly state: TaskState;
  readonly queue: string;
  readonly tenant: string;
  readonly kind?: string;
  readonly priority: number;
  readonly partitionKey?: string;
  readonly payload?: unknown;
  readonly payloadBase64?: string;
  readonly contentType: string;
  readonly attempt: number;
  readonly maxAttempts: number;
  readonly generation: number;
  readonly createdAt: string;
  readonly runAt: string;
  readonly claimedAt?: string;
  readonly finishedAt?: string;
  readonly leaseUntil?: string;
  readonly workerId?: string;
  readonly progress?: unknown;
  readonly result?: unknown;
  readonly reason?: string;
  readonly cause?: string;
  readonly webhook?: string;
  readonly targetUrl?: string;
  /** Position of an event. */
  readonly causedBy?: string;
  readonly traceParent?: string;
}

export interface TaskPage {
  readonly tasks: readonly Task[];
  readonly cursor?: string;
}

export interface Failure {
  readonly at: string;
  readonly attempt: number;
  readonly outcome: string;
  readonly reason: string;
  readonly stack?: string;
  readonly workerId?: string;
}

export interface DeadGroup {
  readonly queue: string;
  readonly cause: string;
  readonly reason: string;
  readonly count: number;
  readonly firstAt: string;
  readonly lastAt: string;
  readonly ids: readonly string[];
}

export interface Ring {
  readonly keySpace: string;
  readonly tenant: string;
  readonly queues: readonly string[];
  readonly owners: readonly {
    readonly worker: string;
    readonly epoch: string;
    readonly buckets: readonly number[];
  }[];
}

export interface Schedule {
  readonly name: string;
  readonly tenant: string;
  readonly cron: string;
  readonly timeZone: string;
  readonly queue: string;
  readonly payload: unknown;
  readonly catchUp: string;
  readonly nextAt?: string;
  readonly lastAt?: string;
  readonly lastTaskId?: string;
  readonly missed: number;
  readonly pausedAt?: string;
  readonly lastError?: string;
}

export interface Firing {
  readonly kind: "tick" | "run-now";
  readonly tick: string;
  readonly taskId: string;
  readonly firedAt: string;
}

export interface Quota {
  readonly tenant: string;
  readonly pendingTasks: number | null;
  readonly pendingBytes: number | null;
  readonly rate: Rate | null;
}

export interface QuotaUse extends Quota {
  readonly used: { readonly tasks: number; readonly bytes: number };
}

export interface EventView {
  readonly position: string;
  readonly type: string;
  readonly stream: { readonly type: string; readonly id: string };
}

export interface KeyLoad {
  readonly waiting: number;
  readonly running: number;
  readonly ended: number;
}

export interface BucketLoad extends KeyLoad {
  readonly bucket: number;
  readonly isCut: boolean;
}

export interface RingLoad {
  readonly buckets: readonly BucketLoad[];
  readonly keys: readonly (KeyLoad & { readonly key: string; readonly bucket: number })[];
  readonly looked: { readonly perBucket: number; readonly ended: number };
}

export interface ParkedGroup {
  readonly consumer: string;
  readonly state: "parked" | "replaying";
  readonly error: string;
  readonly stack?: string;
  readonly events: number;
  readonly firstAt: string;
  readonly lastAt: string;
  readonly streams: readonly {
    readonly type: string;
    readonly id: string;
    readonly position?: string;
  }[];
}

export interface Rebuild {
  readonly consumer: string;
  readonly id: string;
  readonly state: "building" | "swapped" | "rolled_back";
  readonly reason?: string;
  readonly startedAt: string;
  readonly changedAt: string;
  readonly tables: readonly string[];
  readonly schema: string;
  readonly partitions: readonly { readonly name: string; readonly checkpoint: string }[];
  readonly progress?: {
    readonly position: string;
    readonly head: string;
    readonly share: number;
    readonly positionsPerSecond?: number;
    readonly etaSeconds?: number;
    readonly stopped?: "paused" | "quarantined";
    readonly error?: string;
  };
}

export interface ComparedTable {
  readonly table: string;
  readonly liveRows: number;
  readonly rebuiltRows: number;
  readonly compared: "all" | "sample" | "counts";
  readonly missing: number;
  readonly extra: number;
  readonly different: number;
  readonly examples: readonly {
    readonly kind: "missing" | "extra" | "different";
    readonly key: string;
    readonly live?: string;
    readonly rebuilt?: string;
  }[];
}

export interface Comparison {
  readonly position: string;
  readonly isSame: boolean;
  readonly tables: readonly ComparedTable[];
}

export interface AuditedAct {
  readonly id: string;
  readonly at: string;
  readonly act: string;
  readonly call: string;
  readonly target: Readonly<Record<string, unknown>>;
  readonly reason?: string;
  readonly tenant: string;
  readonly subject: string;
  readonly status?: number;
}

export interface ApiKey {
  readonly id: string;
  readonly tenant: string;
  readonly name?: string;
  readonly scopes: readonly string[];
  readonly queues: "all" | readonly string[];
  readonly state: "active" | "expired" | "revoked";
  readonly createdAt: string;
  readonly expiresAt?: string;
  readonly revokedAt?: string;
  readonly lastUsedAt?: string;
}

export interface CrossedGap {
  readonly position: string;
  readonly to: string;
  readonly at: string;
  readonly openSeconds: number;
  readonly how?: string;
  readonly missing?: string;
  readonly fence?: string;
  readonly reason?: string;
}
