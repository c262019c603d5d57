import { TidemillError } from "../base/errors.ts";
import { BUCKETS } from "../cluster/ring.ts";

/** Whose a task is when nobody says. */
export const DEFAULT_TENANT = "default";

/** What every act on a claimed task is compared with. None of the three says enough alone. */
export interface LeaseToken {
  readonly taskId: string;
  /** Grows with every claim of the task. */
  readonly generation: number;
  /** Random, so that a claim that a crash took back is never mistaken for the next one. */
  readonly claimId: string;
}

export type TaskState =
  | "scheduled"
  | "pending"
  | "running"
  | "completed"
  | "failed"
  | "dead"
  | "cancelled";

/** A task as its handler sees it. */
export interface Task<Payload = unknown> {
  /** A decimal number, never changed. */
  readonly id: string;
  readonly queue: string;
  readonly kind: string | undefined;
  readonly payload: Payload;
  /** The payload as it was stored, when it is not JSON. */
  readonly bytes: Buffer | undefined;
  readonly contentType: string;
  readonly priority: number;
  readonly tenant: string;
  readonly partitionKey: string | undefined;
  /** 1 for the first. */
  readonly attempt: number;
  readonly maxAttempts: number;
  readonly createdAt: Date;
  readonly runAt: Date;
  /** The trace that enqueued it, in the form of the W3C headers. */
  readonly traceParent: string | undefined;
  readonly traceState: string | undefined;
}

/**
 * The caller no longer holds the lease it is acting under: it expired and the task was given to
 * another worker, or it was cancelled. Drop the work; nothing of it was accepted.
 */
export class LeaseLostError extends TidemillError {
  readonly code = "TM_LEASE_LOST";
  readonly retryable = false;
  readonly taskId: string;
  readonly generation: number;

  constructor({ taskId, generation }: LeaseToken, options?: ErrorOptions) {
    super(`lease ${generation} on task ${taskId} is no longer held`, options);
    this.taskId = taskId;
    this.generation = generation;
  }
}

/** Somebody cancelled the task while it ran: the reason of its handler's signal. */
export class TaskCancelledError extends TidemillError {
  readonly code = "TM_TASK_CANCELLED";
  readonly retryable = false;
}

/** The handler took longer than its queue allows: the reason of its signal. */
export class TaskTimeoutError extends TidemillError {
  readonly code = "TM_TASK_TIMEOUT";
  readonly retryable = true;
}

/** The worker stops and gave the task back uncounted: the reason of its handler's signal. */
export class WorkerStoppingError extends TidemillError {
  readonly code = "TM_WORKER_STOPPING";
  readonly retryable = true;
}

/** Lanes of keyed tasks are negative, one per bucket of each key space. */
export function keyLane(keySpaceId: number, bucket: number): number {
  return -(keySpaceId * BUCKETS + bucket + 1);
}

export function bucketOfLane(lane: number): { keySpaceId: number; bucket: number } {
  const number = -lane - 1;
  return { keySpaceId: Math.floor(number / BUCKETS), bucket: number % BUCKETS };
}

/** Keys of different key spaces and of different tenants are different keys. */
export function keyId(lane: number, tenant: string, partitionKey: string): string {
  return `${bucketOfLane(lane).keySpaceId}\u0000${tenant}\u0000${partitionKey}`;
}
