import { ConfigError, InvalidInputError, storable } from "../base/errors.ts";
import { JsonText } from "../base/json-text.ts";
import { refuseUnknown, requireNumber } from "../base/options.ts";

declare const result: unique symbol;

/** How a handler says a task ended. Made by the functions of this file only. */
export class Outcome<Result = unknown> {
  declare readonly [result]: Result;
  readonly kind: "completed" | "failed" | "nack" | "abandon";
  readonly value: unknown;
  readonly reason: string;
  /** Of a failure: whether it is tried again. Of a nack: that its pause is the backoff's. */
  readonly retry: boolean;
  readonly delaySeconds: number;
  /** Of a failure: no attempt can run the payload, so the task is dead. */
  readonly isInvalid: boolean;
  /** Of a worker that gives up on its own: nothing is done to what another holds by then. */
  readonly holder: string | undefined;

  private constructor(kind: Outcome["kind"], more: Partial<Outcome>) {
    this.kind = kind;
    this.value = more.value;
    this.reason = more.reason ?? "";
    this.retry = more.retry ?? false;
    this.delaySeconds = more.delaySeconds ?? 0;
    this.isInvalid = more.isInvalid ?? false;
    this.holder = more.holder;
    Object.freeze(this);
  }

  /** The one way in, so that nothing else passes for an outcome. */
  static of<Result>(kind: Outcome["kind"], more: Partial<Outcome> = {}): Outcome<Result> {
    return new Outcome(kind, more);
  }
}

/** The task is done. `result` is kept with its history and given to whoever waits for it. */
export function completed<Result = undefined>(value?: Result): Outcome<Result> {
  return Outcome.of("completed", { value });
}

export interface FailedOptions {
  /** False: the task must not be tried again, however many attempts are left. Defaults to true. */
  readonly retry?: boolean;
}

/** The attempt failed: tried again by the queue's backoff, then dead-lettered. */
export function failed(reason: string, options: FailedOptions = {}): Outcome<never> {
  refuseUnknown("failed", options, ["retry"]);
  return Outcome.of("failed", {
    reason: requireReason("failed", reason),
    retry: options.retry ?? true,
  });
}

/** The same; tried again no sooner than that, however short the backoff. */
export function failedFor(reason: string, delaySeconds: number): Outcome<never> {
  requireNumber("failedFor delaySeconds", delaySeconds, { min: 0 });
  return Outcome.of("failed", {
    reason: requireReason("failed", reason),
    retry: true,
    delaySeconds,
  });
}

/** The payload does not fit the schema of the queue: it waits as a dead letter for a person. */
export function invalidPayload(reason: string): Outcome<never> {
  return Outcome.of("failed", { reason: requireReason("failed", reason), isInvalid: true });
}

/** Not now: the task comes back after the delay, 0 meaning at once. The attempt counts. */
export function nack(delaySeconds: number, reason: string): Outcome<never> {
  requireNumber("nack delaySeconds", delaySeconds, { min: 0 });
  return Outcome.of("nack", { delaySeconds, reason: requireReason("nack", reason) });
}

/** The same, after the pause that the queue's backoff says. */
export function nackByBackoff(reason: string): Outcome<never> {
  return Outcome.of("nack", { retry: true, reason: requireReason("nack", reason) });
}

/** Somebody else should do it: given back as if it had never been claimed. */
export function abandon(): Outcome<never> {
  return Outcome.of("abandon");
}

/** The same, and not before so many seconds: it could not even be tried. */
export function abandonFor(delaySeconds: number): Outcome<never> {
  requireNumber("abandonFor delaySeconds", delaySeconds, { min: 0 });
  return Outcome.of("abandon", { delaySeconds });
}

/** The same, by the worker itself: void when another worker holds the task by then. */
export function abandonBy(workerId: string): Outcome<never> {
  return Outcome.of("abandon", { holder: workerId });
}

function requireReason(what: string, reason: unknown): string {
  if (typeof reason === "string" && reason.trim() !== "") return storable(reason);
  throw new ConfigError(`${what} needs a reason that is not empty: people read it later`);
}

const COMPLETED = Outcome.of("completed");

/** A handler ended with something that is no outcome. */
export function checkOutcome(value: unknown): Outcome {
  if (value === undefined) return COMPLETED;
  if (value instanceof Outcome) return value;
  throw new InvalidInputError(
    "a handler must return completed(), failed(), nack(), abandon() or nothing; " +
      "to keep a result, return completed(result)",
  );
}

/** What is kept of a result: "" for none. */
export function resultJson(result: unknown): string {
  if (result === undefined) return "";
  if (result instanceof JsonText) return result.text;
  const json: string | undefined = JSON.stringify(result);
  if (json === undefined) throw new InvalidInputError("the result cannot be written as JSON");
  return json;
}
