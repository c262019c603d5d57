import type { TaskRow } from "../../../tasks/sql/inspect.ts";
import type { HeldTask } from "../claim-desk.ts";

type State = TaskRow["state"];

/** What clients of CodeQ know a state as. */
export const STATUS: Readonly<Record<State, string>> = {
  scheduled: "PENDING",
  pending: "PENDING",
  running: "IN_PROGRESS",
  completed: "COMPLETED",
  failed: "FAILED",
  dead: "FAILED",
  cancelled: "FAILED",
};

const LOCATION: Readonly<Record<State, string>> = {
  scheduled: "DELAYED_ZSET",
  pending: "PENDING_LIST",
  running: "INPROG_SET",
  completed: "NONE",
  failed: "NONE",
  dead: "DLQ_SET",
  cancelled: "NONE",
};

/** Seconds, as there. */
const leaseText = (date: Date): string => `${date.toISOString().slice(0, 19)}Z`;

/** As it was handed to whoever claimed it: by now it may be elsewhere. */
export function toClaimedCodeqTask(task: HeldTask): object {
  const bytes = task.bytes ?? Buffer.alloc(0);
  return {
    id: task.id,
    command: task.queue,
    payload: task.payload?.text ?? bytes.toString("base64"),
    priority: task.priority,
    webhook: task.webhook,
    traceParent: task.traceParent,
    traceState: task.traceState,
    status: STATUS.running,
    lastKnownLocation: LOCATION.running,
    workerId: task.holder,
    leaseUntil: leaseText(task.leaseUntil),
    attempts: task.attempt,
    maxAttempts: task.maxAttempts,
    tenantId: task.tenant,
    createdAt: task.createdAt,
    updatedAt: task.claimedAt,
  };
}

/** A task in CodeQ's fields; its payload is JSON as a text. */
export function toCodeqTask(row: TaskRow): object {
  const { options, lease_until } = row;
  return {
    id: row.id,
    command: row.queue,
    payload: row.payload ?? (row.bytes ?? Buffer.alloc(0)).toString("base64"),
    priority: row.priority,
    webhook: options?.["webhook"],
    traceParent: options?.["traceParent"],
    traceState: options?.["traceState"],
    status: STATUS[row.state],
    lastKnownLocation: LOCATION[row.state],
    workerId: row.leased_by ?? undefined,
    leaseUntil: lease_until === null ? undefined : leaseText(lease_until),
    attempts: row.attempt,
    maxAttempts: row.max_attempts,
    error: row.reason ?? undefined,
    resultKey: row.result === null ? undefined : row.id,
    tenantId: row.tenant,
    createdAt: row.created_at,
    updatedAt: row.finished_at ?? row.claimed_at ?? row.created_at,
  };
}
