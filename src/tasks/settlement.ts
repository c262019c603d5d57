import { type BackoffPolicy, retryDelaySeconds } from "../base/backoff.ts";
import { ConflictError, messageOf, storable, wellFormed } from "../base/errors.ts";
import type { ClaimedTask } from "./claimed-task.ts";
import { type Outcome, resultJson } from "./outcome.ts";
import type { Burial, Settlement } from "./sql/finish.ts";

/** An abandoned task stays away so long, or a loop of abandons would spin. */
const ABANDON_SECONDS = 1;
const REASON_CHARS_MAX = 4_000;
const STACK_CHARS_MAX = 8_000;

/** Most completions: one object for all of them. */
const WITHOUT_RESULT: Settlement = Object.freeze({ kind: "complete", result: "" });

/** What the handler said becomes what is written. Attempts were counted when it was claimed. */
export function settle(task: ClaimedTask, outcome: Outcome, random: () => number): Settlement {
  switch (outcome.kind) {
    case "completed":
      return outcome.value === undefined
        ? WITHOUT_RESULT
        : { kind: "complete", result: resultJson(outcome.value) };
    case "abandon":
      return giveBack(task, Math.max(ABANDON_SECONDS, outcome.delaySeconds), outcome.holder);
    case "nack": {
      const asked = outcome.retry ? backoffSeconds(task, random) : outcome.delaySeconds;
      const delay = clamped(task, asked);
      return retryOrBury(task, { outcome: "nack", reason: outcome.reason }, delay);
    }
    case "failed":
      if (outcome.isInvalid) return settleInvalid(task, new Error(outcome.reason));
      if (!outcome.retry) {
        const row = { ...setback(task, "failed", outcome.reason), state: "failed" as const };
        return { kind: "end", row };
      }
      return retryOrBury(
        task,
        { outcome: "failed", reason: outcome.reason },
        Math.max(backoffSeconds(task, random), clamped(task, outcome.delaySeconds)),
      );
  }
}

/** A handler that threw, or ran out of time. */
export function settleError(
  task: ClaimedTask,
  error: unknown,
  kind: "failed" | "timeout",
  random: () => number,
): Settlement {
  const stack =
    error instanceof Error && typeof error.stack === "string" ? { stack: error.stack } : {};
  return retryOrBury(
    task,
    { outcome: kind, reason: messageOf(error) || "no message", ...stack },
    backoffSeconds(task, random),
  );
}

export function settleInvalid(task: ClaimedTask, error: unknown): Settlement {
  const cause = "invalid_payload" as const;
  return bury(task, { outcome: "failed", reason: messageOf(error) }, cause);
}

/** The server refuses what was to be written of its end, so the attempt has failed. */
export function settleRefused(task: ClaimedTask, error: unknown, random: () => number): Settlement {
  const reason = `the database refused how it ended: ${messageOf(error)}`;
  return retryOrBury(task, { outcome: "failed", reason }, backoffSeconds(task, random));
}

/** @param holder who holds it, if that matters */
export function settleCancelled(task: ClaimedTask, holder?: string): Settlement {
  const row = { ...setback(task, "cancelled"), ...by(holder), state: "cancelled" as const };
  return { kind: "end", row };
}

/** What to write instead of what was refused. Undefined: the lease is lost. */
export function secondTry(
  task: ClaimedTask,
  settlement: Settlement,
  random: () => number,
): Settlement | undefined {
  const { kind } = settlement;
  if (task.isCompletedByHandler) {
    if (kind !== "complete") return undefined;
    task.isCompletedByHandler = false;
    const error = new ConflictError("the transaction that completed the task was not committed");
    return settleError(task, error, "failed", random);
  }
  if (kind === "complete" || kind === "end") return undefined;
  // It may have been cancelled while it ran, which only its end can tell.
  task.isCancelled = true;
  return settleCancelled(task, settlement.row.holder);
}

/**
 * As if it had never been claimed.
 *
 * @param holder who holds it, if that matters
 */
export function giveBack(task: ClaimedTask, delay: number, holder?: string): Settlement {
  const row = { ...setback(task, "abandoned"), ...by(holder), delay, refund: true };
  return { kind: "put-back", row };
}

const by = (holder: string | undefined): { holder?: string } =>
  holder === undefined ? {} : { holder };

/** Refused, and perhaps only because another worker holds it under the same claim. */
export const isElsewhere = (settlement: Settlement): boolean =>
  settlement.kind !== "complete" && settlement.row.holder !== undefined;

interface Trouble {
  readonly outcome: "failed" | "nack" | "timeout";
  readonly reason: string;
  readonly stack?: string;
}

function retryOrBury(task: ClaimedTask, trouble: Trouble, delay: number): Settlement {
  if (task.attempt >= task.maxAttempts) return bury(task, trouble, "attempts_exhausted");
  const { outcome, reason, stack } = trouble;
  const row = { ...setback(task, outcome, reason, stack), delay, refund: false };
  return { kind: "put-back", row };
}

function bury(task: ClaimedTask, trouble: Trouble, cause: Burial["cause"]): Settlement {
  const { outcome, reason, stack } = trouble;
  const park = task.handler.queue.settings.onFailure === "park";
  return { kind: "bury", row: { ...setback(task, outcome, reason, stack), cause, park } };
}

function setback<Kind extends string>(
  task: ClaimedTask,
  outcome: Kind,
  reason?: string,
  stack?: string,
): {
  id: string;
  generation: number;
  claim_id: string;
  outcome: Kind;
  reason?: string;
  stack?: string;
} {
  return {
    id: task.id,
    generation: task.generation,
    claim_id: task.claim.id,
    outcome,
    ...(reason === undefined
      ? {}
      : { reason: wellFormed(storable(reason).slice(0, REASON_CHARS_MAX)) }),
    ...(stack === undefined
      ? {}
      : { stack: wellFormed(storable(stack).slice(0, STACK_CHARS_MAX)) }),
  };
}

/** A pause that somebody asked for, as long as the queue allows. */
function clamped({ handler }: ClaimedTask, seconds: number): number {
  return Math.min(seconds, handler.queue.settings.nackSecondsMax);
}

function backoffSeconds(task: ClaimedTask, random: () => number): number {
  const own = task.options.backoff as BackoffPolicy | undefined;
  return retryDelaySeconds(own ?? task.handler.queue.settings.backoff, task.attempt, random);
}
