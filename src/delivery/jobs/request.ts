import { createHash } from "node:crypto";
import type { TraceContext } from "../../base/trace-context.ts";
import type { HttpMethod, ResolvedCall } from "../../tasks/http-call.ts";
import type { EgressRequest } from "../egress/request.ts";
import { signWebhook } from "../signature.ts";

/** What a call tells of its task. */
export interface CalledTask {
  readonly id: string;
  readonly attempt: number;
  readonly createdAt: Date;
  readonly contentType: string;
  /** The payload as it was stored, byte by byte. */
  readonly payloadBytes: Uint8Array;
}

export interface CallFacts {
  readonly trace: TraceContext;
  readonly secrets: readonly string[];
  readonly now: Date;
}

const BODILESS: readonly HttpMethod[] = ["GET", "DELETE"];

/** 16 bytes in base64url. */
const DIGEST_LENGTH = 22;

/**
 * The same for every attempt of a task, and for no other task: neither of this database, where ids
 * are unique, nor of another one, which stored its task of that id at another time. A dead letter
 * that was edited says something else: under the old key a target would answer as to the old body.
 */
export function idempotencyKeyOf({ id, createdAt, payloadBytes }: CalledTask): string {
  const digest = createHash("sha256").update(payloadBytes).digest("base64url");
  return `tidemill-${id}-${createdAt.getTime().toString(36)}-${digest.slice(0, DIGEST_LENGTH)}`;
}

/** Writes and signs the call of a task. Its own headers cannot replace ours. */
export function requestOf(task: CalledTask, call: ResolvedCall, facts: CallFacts): EgressRequest {
  const { targetUrl: url, method } = call;
  const key = idempotencyKeyOf(task);
  const body = BODILESS.includes(method) ? undefined : task.payloadBytes;
  const { traceParent, traceState } = facts.trace;
  const headers = {
    ...(body === undefined ? {} : { "content-type": task.contentType }),
    ...call.headers,
    "idempotency-key": key,
    "tidemill-task-id": task.id,
    "tidemill-attempt": String(task.attempt),
    ...(traceParent === undefined ? {} : { traceparent: traceParent }),
    ...(traceState === undefined ? {} : { tracestate: traceState }),
    ...signWebhook({ id: key, body: body ?? "" }, facts.secrets, facts.now),
  };
  return { url, method, headers, ...(body === undefined ? {} : { body }) };
}
