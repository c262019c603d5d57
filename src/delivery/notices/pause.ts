import { exponentialMs } from "../../base/backoff.ts";
import { retryAfterSeconds } from "../retry-after.ts";
import type { CallOutcome } from "../verdict.ts";

/** Failures in a row after which a subscription is shown as failing. */
export const FAILING_AFTER = 5;
const PAUSE_SECONDS_MIN = 5;
const PAUSE_SECONDS_MAX = 300;

export interface NoticeVerdict {
  readonly isTold: boolean;
  readonly isFailing: boolean;
  readonly pauseSeconds: number;
}

/**
 * What a call means for its subscription. Any 2xx is a receipt. After anything else the next notice
 * waits longer and longer, or as long as the receiver asks. Who says that nobody is there (410), or
 * may not be called, is failing at once: nothing but a renewal is a sign of better times.
 */
export function verdictOfNotice(
  outcome: CallOutcome,
  failuresBefore: number,
  { now, random }: { readonly now: Date; readonly random: () => number },
): NoticeVerdict {
  if ("status" in outcome && outcome.status >= 200 && outcome.status < 300) {
    return { isTold: true, isFailing: false, pauseSeconds: 0 };
  }
  const isHopeless = "status" in outcome ? outcome.status === 410 : outcome.isRefused;
  const failures = failuresBefore + 1;
  const doubled = exponentialMs(failures, PAUSE_SECONDS_MIN, PAUSE_SECONDS_MAX);
  const pause = isHopeless ? PAUSE_SECONDS_MAX : doubled * (0.8 + 0.4 * random());
  const asked = "status" in outcome ? retryAfterSeconds(outcome.retryAfter, now) : 0;
  return {
    isTold: false,
    isFailing: isHopeless || failures >= FAILING_AFTER,
    pauseSeconds: Math.max(asked, pause),
  };
}
