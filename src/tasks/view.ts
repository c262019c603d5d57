import type { FailureRow, TaskRow } from "./sql/inspect.ts";
import type { TaskState } from "./task.ts";

/** One attempt that did not complete the task. */
export interface TaskFailure {
  readonly at: Date;
  readonly attempt: number;
  readonly outcome: string;
  readonly reason: string;
  readonly stack: string | undefined;
  readonly workerId: string | undefined;
}

/** A task as people see it, wherever it is in its life. */
export interface TaskView {
  readonly id: string;
  readonly state: TaskState;
  readonly queue: string;
  readonly tenant: string;
  readonly kind: string | undefined;
  readonly priority: number;
  readonly partitionKey: string | undefined;
  /** Parsed JSON, or the bytes. */
  readonly payload: unknown;
  readonly contentType: string;
  readonly attempt: number;
  readonly maxAttempts: number;
  readonly createdAt: Date;
  readonly runAt: Date;
  readonly claimedAt: Date | undefined;
  readonly finishedAt: Date | undefined;
  readonly leaseUntil: Date | undefined;
  readonly workerId: string | undefined;
  readonly progress: unknown;
  /** Of a completed task. */
  readonly result: unknown;
  /**
   * Why it failed, died or was cancelled. Of a task that lives: why it is to be stopped, else why
   * its last attempt came to nothing, which lists do not tell.
   */
  readonly reason: string | undefined;
  /** Of a dead task: attempts_exhausted, worker_lost or invalid_payload. */
  readonly cause: string | undefined;
  readonly webhook: string | undefined;
  /** Of a task that names what it calls; headers are not shown, because they may be secret. */
  readonly targetUrl: string | undefined;
  /** Position of the event that caused it. */
  readonly causedBy: string | undefined;
  readonly traceParent: string | undefined;
}

export function toTaskView(row: TaskRow): TaskView {
  const option = (name: string): string | undefined => {
    const value = row.options?.[name];
    return typeof value === "string" ? value : undefined;
  };
  return {
    id: row.id,
    state: row.state,
    queue: row.queue,
    tenant: row.tenant,
    kind: row.kind ?? undefined,
    priority: row.priority,
    partitionKey: row.partition_key ?? undefined,
    payload: row.payload === null ? row.bytes : JSON.parse(row.payload),
    contentType: row.content_type ?? "application/json",
    attempt: row.attempt,
    maxAttempts: row.max_attempts,
    createdAt: row.created_at,
    runAt: row.run_at,
    claimedAt: row.claimed_at ?? undefined,
    finishedAt: row.finished_at ?? undefined,
    leaseUntil: row.lease_until ?? undefined,
    workerId: row.leased_by ?? undefined,
    progress: row.progress ?? undefined,
    result: row.result === null ? undefined : JSON.parse(row.result),
    reason: row.reason ?? undefined,
    cause: row.cause ?? undefined,
    webhook: option("webhook"),
    targetUrl: targetUrlOf(row),
    causedBy: option("causedBy"),
    traceParent: option("traceParent"),
  };
}

/** What its options name, if they do. */
export function targetUrlOf({ options }: Pick<TaskRow, "options">): string | undefined {
  const http: unknown = options?.["http"];
  if (typeof http !== "object" || http === null || !("targetUrl" in http)) return undefined;
  return typeof http.targetUrl === "string" ? http.targetUrl : undefined;
}

export function toTaskFailure(row: FailureRow): TaskFailure {
  return {
    at: row.at,
    attempt: row.attempt,
    outcome: row.outcome,
    reason: row.reason,
    stack: row.stack ?? undefined,
    workerId: row.worker_id ?? undefined,
  };
}
