import { exponentialMs, withJitter } from "../../base/backoff.ts";

/** How one attempt of a call ended without success. */
export interface FailedAttempt {
  /** 1 for the first. */
  readonly attempt: number;
  /** Of the answer; undefined: there was none. */
  readonly status: number | undefined;
  /** What the server advised; 0 for nothing. */
  readonly retryAfterMs: number;
  /** The request did not reach the server. */
  readonly isUnsent: boolean;
}

export interface RetryRules {
  readonly attemptsMax: number;
  /** Doing it twice does no more than doing it once. */
  readonly isRepeatable: boolean;
  readonly random: () => number;
}

const BASE_MS = 200;
const MAX_MS = 5_000;

/** How long to wait before the next attempt. Undefined: there is none. */
export function retryWaitMs(failed: FailedAttempt, rules: RetryRules): number | undefined {
  const { attempt, status, retryAfterMs, isUnsent } = failed;
  if (attempt >= rules.attemptsMax) return undefined;
  // 429 and what was never sent have done nothing; the others may have, and their answer is lost.
  const isPassing = status === undefined || status === 502 || status === 503 || status === 504;
  const mayRepeat = status === 429 || isUnsent || (isPassing && rules.isRepeatable);
  if (!mayRepeat) return undefined;
  return Math.max(retryAfterMs, withJitter(exponentialMs(attempt, BASE_MS, MAX_MS), rules.random));
}
