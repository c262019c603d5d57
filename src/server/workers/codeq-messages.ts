import type { ClaimedTask } from "../../tasks/claimed-task.ts";
import { completed, failed, type Outcome } from "../../tasks/outcome.ts";
import { LeaseLostError } from "../../tasks/task.ts";
import type { NackAck, ServerEvent, Task } from "../../wire/generated/codeq/worker.ts";
import { failureOf } from "../failure.ts";
import { jsonOf } from "../producer/payload.ts";
import { toDone } from "./act-answers.ts";

/** What a client is told of words that came too late, or that were not its own to say. */
export const NOT_FOUND = "not-found";
export const NOT_IN_PROGRESS = "not-in-progress";
export const NOT_OWNER = "not-owner";

const NO_BYTES = Buffer.alloc(0);

/** A task as CodeQ's clients read it. */
export const toTask = (task: ClaimedTask, workerId: string): Task => ({
  ...toCommon(task, workerId),
  id: task.id,
  payload: task.payloadBytes,
});

/** The same, without what tasks of one pack do not have in common. */
export function toCommon(task: ClaimedTask, workerId: string): Task {
  return {
    id: "",
    command: task.queue,
    payload: NO_BYTES,
    priority: task.priority,
    webhook: task.options.webhook ?? "",
    maxAttempts: task.maxAttempts,
    status: "IN_PROGRESS",
    workerId,
    leaseUntil: toSeconds(task.leaseUntil),
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

/** What a client says became of a task; what it gives as its result may be anywhere in a buffer. */
export interface SaidResult {
  readonly status: string;
  readonly bytes: Buffer;
  readonly from: number;
  readonly to: number;
  readonly error: string;
}

/** What the client said became of a task, or why that cannot be heard. */
export function toOutcome({ status, bytes, from, to, error }: SaidResult): Outcome | string {
  if (status === "COMPLETED") {
    if (from === to) return completed();
    const json = jsonOf(bytes, from, to);
    const isObject = json?.text.trimStart().startsWith("{") === true;
    return isObject ? completed(json) : "result must be a JSON object";
  }
  if (status !== "FAILED") return "status must be COMPLETED or FAILED";
  return error.trim() === "" ? "error is required when status=FAILED" : failed(error);
}

/** What a client is told of what was not accepted. */
export const faultOf = (answer: string): string =>
  answer === "refused" || answer === "replaced" ? NOT_IN_PROGRESS : answer;

/** The same of an error. */
export const toFault = (error: Error): string =>
  error instanceof LeaseLostError ? NOT_IN_PROGRESS : failureOf(error).message;

export const toAck = (taskId: string, answer: string) => {
  const ok = answer === "accepted";
  return { taskId, ok, errorMessage: ok ? "" : faultOf(answer) };
};

/** What a nack did: nothing, unless it was accepted. */
export function toNackAck(taskId: string, task: ClaimedTask | undefined, answer: string): NackAck {
  const done = answer === "accepted" && task !== undefined ? toDone(task, answer) : undefined;
  const isDone = done !== undefined && !(done instanceof Error);
  return {
    ...toAck(taskId, answer),
    appliedDelaySeconds: isDone ? done.delaySeconds : 0,
    dlq: isDone && done.state === "dead",
  };
}

type Event = NonNullable<ServerEvent["event"]>;
export const event = (one: Event): ServerEvent => ({ event: one });

/** The names of statuses as Go writes them. */
export type GoStatus = "FailedPrecondition" | "InvalidArgument" | "PermissionDenied";

export const serverError = (code: GoStatus, message: string): ServerEvent =>
  event({ $case: "error", value: { code, message } });
