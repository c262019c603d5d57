import type { BackoffPolicy } from "../base/backoff.ts";
import { InvalidInputError, messageOf } from "../base/errors.ts";
import { JsonText } from "../base/json-text.ts";
import type { HttpCall } from "./http-call.ts";
import type { Priority } from "./priority.ts";

export interface TaskOptions {
  /** What sort of task it is, for people and for filters. Defaults to none. */
  readonly kind?: string;
  /** Defaults to the queue's. */
  readonly priority?: Priority;
  /** Tasks of one key run one after another, in the order of their enqueues. Defaults to none. */
  readonly partitionKey?: string;
  /** Not before this instant. Defaults to now. */
  readonly runAt?: Date | string;
  /** Not before so many seconds from now, by the database's clock. Defaults to 0. */
  readonly delaySeconds?: number;
  /** Defaults to the queue's. */
  readonly maxAttempts?: number;
  /** Defaults to the queue's. */
  readonly backoff?: Partial<BackoffPolicy>;
  /** Defaults to the queue's. */
  readonly timeoutSeconds?: number;
  /** The same key with the same task gives the first one; with another task it is refused. */
  readonly idempotencyKey?: string;
  /** How long the key is remembered. Defaults to the queue's. */
  readonly idempotencySeconds?: number;
  /** Told when the task ends: a URL, or the id of an endpoint of the tenant. Defaults to none. */
  readonly webhook?: string;
  /** Of a task of an `http` queue: what to call, and how. Defaults to what the queue says. */
  readonly http?: HttpCall;
  /** Position of the event that caused it, for people. Routes set it. Defaults to none. */
  readonly causedBy?: string;
  readonly traceParent?: string;
  readonly traceState?: string;
  /** Defaults to "default". */
  readonly tenant?: string;
  /** Of a payload given as bytes. Defaults to "application/octet-stream". */
  readonly contentType?: string;
}

export interface NewTask<Payload = unknown> extends TaskOptions {
  /** JSON, bytes, or JSON that is stored letter by letter. */
  readonly payload: Payload | Uint8Array | JsonText;
}

const isDefault: unique symbol = Symbol("maxAttempts is a default");

/**
 * With attempts that the caller did not name. A task with an idempotency key is then still the same
 * task when the default has changed meanwhile.
 */
export function withDefaultAttempts<Options extends TaskOptions>(
  options: Options,
  maxAttempts: number,
): Options {
  return { ...options, maxAttempts, [isDefault]: true };
}

export const hasDefaultAttempts = (options: TaskOptions): boolean => isDefault in options;

/** All of them; others are refused. */
export const TASK_KEYS: readonly string[] = [
  "payload",
  "kind",
  "priority",
  "partitionKey",
  "runAt",
  "delaySeconds",
  "maxAttempts",
  "backoff",
  "timeoutSeconds",
  "idempotencyKey",
  "idempotencySeconds",
  "webhook",
  "http",
  "causedBy",
  "traceParent",
  "traceState",
  "tenant",
  "contentType",
];

/** As it is to be stored. */
export function toJson(payload: unknown): string {
  if (payload instanceof JsonText) return payload.text;
  let json: string | undefined;
  try {
    json = JSON.stringify(payload === undefined ? null : payload);
  } catch (error) {
    throw new InvalidInputError(`the payload cannot be written as JSON: ${messageOf(error)}`);
  }
  if (json === undefined) throw new InvalidInputError("the payload cannot be written as JSON");
  return json;
}
