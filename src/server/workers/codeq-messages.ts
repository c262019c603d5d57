import { completed, failed, type Outcome } from "../../tasks/outcome.ts";
import type { NackAck, Result, ServerEvent, Task } from "../../wire/generated/codeq/worker.ts";
import type { Assignment } from "./assignment.ts";

/** What a client is told of words that came too late, or that were not its own to say. */
export const NOT_IN_PROGRESS = "not-in-progress";
export const NOT_OWNER = "not-owner";

/** A task as CodeQ's clients read it. */
export function toTask({ task, context }: Assignment, workerId: string): Task {
  return {
    id: task.id,
    command: task.queue,
    payload: task.payloadBytes,
    priority: task.priority,
    webhook: task.options.webhook ?? "",
    maxAttempts: task.maxAttempts,
    status: "IN_PROGRESS",
    workerId,
    leaseUntil: toSeconds(context.leaseUntil),
    attempts: task.attempt,
    tenantId: task.tenant,
    createdAt: task.createdAt,
    updatedAt: undefined,
  };
}

/** RFC 3339, without fractions. Tasks come by the hundred with the same instant. */
function toSeconds(instant: Date): string {
  const second = Math.floor(instant.getTime() / 1000);
  if (second !== lastSecond) {
    lastSecond = second;
    lastText = `${instant.toISOString().slice(0, 19)}Z`;
  }
  return lastText;
}
let lastSecond = Number.NaN;
let lastText = "";

/** What the client said became of a task, or why that cannot be heard. */
export function toOutcome({ status, resultJson, error }: Result): Outcome | string {
  if (status === "COMPLETED") {
    if (resultJson.length === 0) return completed();
    const value = readObject(resultJson);
    return value === undefined ? "result must be a JSON object" : completed(value);
  }
  if (status !== "FAILED") return "status must be COMPLETED or FAILED";
  return error.trim() === "" ? "error is required when status=FAILED" : failed(error);
}

const UTF_8 = new TextDecoder("utf-8", { fatal: true });

function readObject(json: Uint8Array): object | null | undefined {
  try {
    const value: unknown = JSON.parse(UTF_8.decode(json));
    if (value === null) return undefined;
    return typeof value === "object" && !Array.isArray(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

export const toAck = (taskId: string, answer: string) => {
  const ok = answer === "accepted";
  const isOver = answer === "refused" || answer === "replaced";
  return { taskId, ok, errorMessage: ok ? "" : isOver ? NOT_IN_PROGRESS : answer };
};

/** What a nack did, or would have done. */
export function toNackAck({ task }: Assignment, delaySeconds: number, answer: string): NackAck {
  const { nackSecondsMax } = task.handler.queue.settings;
  const dlq = task.attempt >= task.maxAttempts;
  const appliedDelaySeconds = dlq ? 0 : Math.min(delaySeconds, nackSecondsMax);
  return { ...toAck(task.id, answer), appliedDelaySeconds, dlq };
}

type Event = NonNullable<ServerEvent["event"]>;
export const event = (one: Event): ServerEvent => ({ event: one });

/** The names of statuses as Go writes them. */
export type GoStatus =
  | "FailedPrecondition"
  | "InvalidArgument"
  | "PermissionDenied"
  | "ResourceExhausted"
  | "Unavailable";

export const serverError = (code: GoStatus, message: string): ServerEvent =>
  event({ $case: "error", value: { code, message } });
