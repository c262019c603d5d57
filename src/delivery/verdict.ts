import { exponentialMs } from "../base/backoff.ts";
import { retryAfterSeconds } from "./retry-after.ts";

/** Attempts of one delivery: with the pauses below they take about a day. */
export const ATTEMPTS_MAX = 16;
const PAUSE_SECONDS_MIN = 10;
const PAUSE_SECONDS_MAX = 4 * 3_600;

/** Why a delivery is given up. */
export type DeathCause = "attempts_exhausted" | "refused" | "gone" | "no_endpoint" | "disabled";

/** What became of one call: an answer, or why there is none. */
export type CallOutcome =
  | { readonly status: number; readonly retryAfter: string | undefined }
  | { readonly isRefused: boolean };

export type Verdict =
  | { readonly state: "delivered" }
  | { readonly state: "pending"; readonly delaySeconds: number }
  | { readonly state: "dead"; readonly cause: DeathCause };

export interface Circumstances {
  /** This one included. */
  readonly attempt: number;
  readonly attemptsMax: number;
  readonly now: Date;
  /** Between 0 and 1. */
  readonly random: () => number;
}

/**
 * What is to be written of a call. Any 2xx is a receipt; 410 says that nobody will ever listen
 * there; what the egress guard refuses it will refuse again. All else may pass, also 4xx: receivers
 * answer such while they are deployed.
 */
export function verdictOf(outcome: CallOutcome, circumstances: Circumstances): Verdict {
  if ("status" in outcome && outcome.status >= 200 && outcome.status < 300) {
    return { state: "delivered" };
  }
  if ("status" in outcome && outcome.status === 410) return { state: "dead", cause: "gone" };
  if ("isRefused" in outcome && outcome.isRefused) return { state: "dead", cause: "refused" };
  const { attempt, attemptsMax, now, random } = circumstances;
  if (attempt >= attemptsMax) return { state: "dead", cause: "attempts_exhausted" };
  const asked = "status" in outcome ? retryAfterSeconds(outcome.retryAfter, now) : 0;
  return { state: "pending", delaySeconds: Math.max(asked, pauseSeconds(attempt, random)) };
}

/** Doubles from ten seconds to four hours, a fifth more or less: none return together. */
export function pauseSeconds(attempt: number, random: () => number): number {
  const doubled = exponentialMs(attempt, PAUSE_SECONDS_MIN, PAUSE_SECONDS_MAX);
  return doubled * (0.8 + 0.4 * random());
}
