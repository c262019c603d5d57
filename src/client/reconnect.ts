import { status } from "@grpc/grpc-js";
import { exponentialMs, withJitter } from "../base/backoff.ts";

export interface ReconnectFacts {
  /** Of the stream that ended. */
  readonly code: status;
  /** Its hello had been acknowledged. */
  readonly wasKnown: boolean;
  /** Any hello had been acknowledged before. */
  readonly wasEverKnown: boolean;
  /** How long it was known. */
  readonly knownMs: number;
  /** Streams in a row that ended before they were of use, this one not counted. */
  readonly failures: number;
  /** Hellos in a row that were refused for their token, this one not counted. */
  readonly refusals: number;
  /** The token is a function, and may be another one the next time. */
  readonly hasFreshToken: boolean;
  readonly addressCount: number;
}

export interface ReconnectRules {
  readonly baseMs: number;
  readonly maxMs: number;
  readonly random: () => number;
}

export type ReconnectDecision =
  | { readonly kind: "fail" }
  | {
      readonly kind: "again";
      readonly waitMs: number;
      readonly failures: number;
      readonly refusals: number;
    };

/** A stream that lived so long was of use: the next failure is the first again. */
export const OF_USE_MS = 5_000;
const REFUSALS_MAX = 3;

/** Whether to connect again after a stream ended, and how long to wait before. */
export function decideReconnect(facts: ReconnectFacts, rules: ReconnectRules): ReconnectDecision {
  if (isForGood(facts)) return { kind: "fail" };
  const { code, wasKnown, knownMs, addressCount } = facts;
  const refusals = !wasKnown && code === status.UNAUTHENTICATED ? facts.refusals + 1 : 0;
  const failures = wasKnown && knownMs >= OF_USE_MS ? 1 : facts.failures + 1;
  // One round through all addresses counts as one failure: the next server may be well.
  const rounds = Math.ceil(failures / addressCount);
  const waitMs = withJitter(exponentialMs(rounds, rules.baseMs, rules.maxMs), rules.random);
  return { kind: "again", waitMs, failures, refusals };
}

function isForGood(facts: ReconnectFacts): boolean {
  const { code, wasKnown, wasEverKnown, hasFreshToken, refusals } = facts;
  if (wasKnown) return false;
  switch (code) {
    case status.UNAUTHENTICATED:
      return !hasFreshToken || refusals + 1 >= REFUSALS_MAX;
    case status.PERMISSION_DENIED:
      return true;
    // After a success the same hello was good: this server may be another version, or half up.
    case status.INVALID_ARGUMENT:
    case status.UNIMPLEMENTED:
      return !wasEverKnown;
    default:
      return false;
  }
}
