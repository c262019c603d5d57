import { inspect } from "node:util";
import { ConfigError } from "./errors.ts";
import { refuseUnknown, requireNumber, requireOneOf, withoutUndefined } from "./options.ts";

/** Doubles from `baseMs` up to `maxMs`: failure 1 waits the base. Never overflows. */
export function exponentialMs(failures: number, baseMs: number, maxMs: number): number {
  const doublings = Math.max(0, failures - 1);
  if (doublings >= 40) return maxMs;
  return Math.min(maxMs, baseMs * 2 ** doublings);
}

/** Between half and all of `ms`, so that processes that failed together do not return together. */
export function withJitter(ms: number, random: () => number = Math.random): number {
  return ms / 2 + (ms / 2) * random();
}

/** The idle wait of a polling loop: doubles from the base while nothing is found. */
export function nextPollMs(currentMs: number, baseMs: number, maxMs: number): number {
  if (currentMs <= 0) return Math.min(baseMs, Math.max(maxMs, baseMs));
  if (maxMs <= 0) return currentMs;
  return Math.min(currentMs * 2, maxMs);
}

const BACKOFF_KINDS = ["fixed", "linear", "exponential", "equal-jitter", "full-jitter"] as const;
/** Longer than any sane pause, and short enough to be added to any date. */
const PAUSE_SECONDS_MAX = 365 * 86_400;

/**
 * How long a failed task waits before its next attempt, as data that can be stored and shown.
 * `fixed` is always the base, `linear` grows by the base, `exponential` doubles from it.
 * `equal-jitter` is between half and all of the exponential pause, `full-jitter` between nothing
 * and all of it, so that tasks that failed together do not come back together.
 */
export interface BackoffPolicy {
  readonly kind: (typeof BACKOFF_KINDS)[number];
  readonly baseSeconds: number;
  readonly maxSeconds: number;
}

export const DEFAULT_BACKOFF: BackoffPolicy = {
  kind: "full-jitter",
  baseSeconds: 5,
  maxSeconds: 900,
};

/** The pause after `attempt` failed; 1 is the first, and waits the base before any jitter. */
export function retryDelaySeconds(
  policy: BackoffPolicy,
  attempt: number,
  random: () => number = Math.random,
): number {
  const { kind, baseSeconds, maxSeconds } = policy;
  const failures = Math.min(Math.max(1, attempt), Number.MAX_SAFE_INTEGER);
  const limited = (seconds: number): number => Math.min(maxSeconds, Math.max(0, seconds));
  if (kind === "fixed") return limited(baseSeconds);
  if (kind === "linear") return limited(baseSeconds * failures);
  // 2 ** 1023 is the largest power that is a number, and nothing times it stays nothing.
  const doubled = limited(baseSeconds * 2 ** Math.min(failures - 1, 1_023));
  if (kind === "exponential") return doubled;
  return limited(kind === "equal-jitter" ? withJitter(doubled, random) : doubled * random());
}

/** Fills in what was left out and refuses what cannot work. */
export function resolveBackoff(given: unknown): BackoffPolicy {
  if (given === undefined) return DEFAULT_BACKOFF;
  if (typeof given !== "object" || given === null || Array.isArray(given)) {
    throw new ConfigError(
      'backoff must be an object such as { kind: "exponential", baseSeconds: 5, maxSeconds: 900 }' +
        `, not ${inspect(given, { depth: 0 })}`,
    );
  }
  refuseUnknown("backoff", given, ["kind", "baseSeconds", "maxSeconds"]);
  const found: Partial<Record<keyof BackoffPolicy, unknown>> = withoutUndefined(given);
  const { kind: givenKind, baseSeconds: base, maxSeconds: max } = { ...DEFAULT_BACKOFF, ...found };
  const range = { min: 0, max: PAUSE_SECONDS_MAX };
  const kind = requireOneOf("backoff.kind", givenKind, BACKOFF_KINDS);
  const baseSeconds = requireNumber("backoff.baseSeconds", base, range);
  const maxGiven = requireNumber("backoff.maxSeconds", max, range);
  // A base above the default maximum is no mistake; a base above a maximum that was given is.
  const maxSeconds = "maxSeconds" in found ? maxGiven : Math.max(maxGiven, baseSeconds);
  if (maxSeconds < baseSeconds) {
    throw new ConfigError(
      `backoff.maxSeconds (${maxSeconds}) is below backoff.baseSeconds (${baseSeconds}): ` +
        "raise the first or lower the second",
    );
  }
  return { kind, baseSeconds, maxSeconds };
}
