import { createHmac } from "node:crypto";
import { splitArtifacts } from "./codeq-artifacts.ts";
import { signWebhook } from "./signature.ts";

export const WEBHOOK_FORMATS = ["standard", "codeq"] as const;

/** "codeq" is for receivers that were written for CodeQ's result callbacks. */
export type WebhookFormat = (typeof WEBHOOK_FORMATS)[number];

export type WebhookType = "task.completed" | "task.failed" | "task.dead" | "task.cancelled";

/** What is told of a task, as it was stored when the task ended. */
export interface EndedTask {
  readonly queue: string;
  readonly kind?: string;
  readonly partitionKey?: string;
  readonly priority: number;
  readonly attempt: number;
  readonly maxAttempts: number;
  readonly createdAt: string;
  /** Of a dead task. */
  readonly cause?: string;
  /** Of a result that was too large to be sent. */
  readonly resultBytes?: number;
  readonly traceParent?: unknown;
  readonly traceState?: unknown;
}

/** One message, the same for every attempt. */
export interface WebhookEvent {
  readonly id: string;
  readonly type: WebhookType;
  readonly tenant: string;
  readonly taskId: string;
  /** When the task ended. */
  readonly at: Date;
  readonly task: EndedTask;
  /** JSON, if there is one. */
  readonly result: string | undefined;
  readonly reason: string | undefined;
}

export interface SignedMessage {
  readonly body: string;
  readonly headers: Readonly<Record<string, string>>;
}

/** Writes and signs a message. `secrets` are the newest and, during a rotation, the one before. */
export function signedMessage(
  event: WebhookEvent,
  format: WebhookFormat,
  secrets: readonly string[],
  now: Date,
): SignedMessage {
  const body = format === "codeq" ? codeqBody(event) : standardBody(event);
  const signature =
    format === "codeq"
      ? codeqHeaders(event.id, body, secrets, now)
      : signWebhook({ id: event.id, body }, secrets, now);
  return {
    body,
    headers: { "content-type": "application/json", ...signature, ...traceHeaders(event.task) },
  };
}

/** Depends on nothing but the event, so a repetition has the same bytes. */
export function standardBody(event: WebhookEvent): string {
  const { task, result } = event;
  const data = {
    taskId: event.taskId,
    queue: task.queue,
    kind: task.kind,
    tenant: event.tenant,
    partitionKey: task.partitionKey,
    priority: task.priority,
    state: event.type.slice("task.".length),
    attempt: task.attempt,
    maxAttempts: task.maxAttempts,
    createdAt: new Date(task.createdAt).toISOString(),
    cause: task.cause,
    reason: event.reason,
    resultBytes: task.resultBytes,
  };
  const message = { id: event.id, type: event.type, at: event.at.toISOString(), data };
  return withResult(JSON.stringify(message), result, "}}");
}

/** The fields and names of CodeQ's result callback; a dead or cancelled task has failed there. */
function codeqBody(event: WebhookEvent): string {
  const isCompleted = event.type === "task.completed";
  const { result, artifacts } = splitArtifacts(event.result);
  const message = {
    taskId: event.taskId,
    eventType: event.task.queue,
    status: isCompleted ? "COMPLETED" : "FAILED",
    error: event.reason ?? (isCompleted ? "" : event.type.slice("task.".length)),
    artifacts,
    completedAt: event.at.toISOString(),
  };
  return withResult(JSON.stringify(message), result ?? "null", "}");
}

/**
 * The result as it was stored: parsing and writing it again would round large numbers. It is the
 * last field of the innermost object, of which `end` closes what is open.
 */
function withResult(json: string, result: string | undefined, end: string): string {
  if (result === undefined || !isJson(result)) return json;
  return `${json.slice(0, -end.length)},"result":${result}${end}`;
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

/**
 * There is room for one signature. During a rotation it is the old secret's, so that receivers have
 * until its end to learn the new one.
 */
export function codeqHeaders(
  id: string,
  body: string,
  secrets: readonly string[],
  now: Date,
): Record<string, string> {
  const secret = secrets.at(-1) ?? "";
  if (secret === "") throw new Error("a webhook cannot be signed without a secret");
  const timestamp = String(Math.floor(now.getTime() / 1_000));
  const signature = createHmac("sha256", secret).update(`${timestamp}.${body}`).digest("hex");
  return {
    "webhook-id": id,
    "x-codeq-timestamp": timestamp,
    "x-codeq-signature": signature,
  };
}

const TRACE_PARENT = /^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$/;
const TRACE_STATE = /^[\x20-\x7e]{1,512}$/;

/** Of the task, if they are what W3C says; the rest of a message does not fail over them. */
function traceHeaders({ traceParent, traceState }: EndedTask): Record<string, string> {
  if (typeof traceParent !== "string" || !TRACE_PARENT.test(traceParent)) return {};
  const hasState = typeof traceState === "string" && TRACE_STATE.test(traceState);
  return { traceparent: traceParent, ...(hasState ? { tracestate: traceState } : {}) };
}
