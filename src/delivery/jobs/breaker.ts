export interface BreakerRules {
  /** So many failures in a row open it. */
  readonly failuresMax: number;
  /** How long it stays open the first time; then twice as long, and so on. */
  readonly openMs: number;
  readonly openMsMax: number;
}

/**
 * Whether a target is called: closed (it is) → open (it is not, until an instant) → probing (one
 * call finds out) → closed, or open for longer. A target that asks for a pause opens it, too.
 */
export type Breaker =
  | { readonly state: "closed"; readonly failures: number }
  | { readonly state: "open"; readonly untilMs: number; readonly opens: number }
  | { readonly state: "probing"; readonly opens: number };

/** What a call that ended tells of its target. "unknown": we ended it ourselves. */
export type News = "alive" | "dead" | "unknown" | { readonly pauseMs: number };

export const CLOSED: Breaker = Object.freeze({ state: "closed", failures: 0 });

/** How long calls must wait; 0 for none. Infinity while one of them finds out. */
export function waitMs(breaker: Breaker, nowMs: number): number {
  if (breaker.state === "closed") return 0;
  return breaker.state === "probing" ? Infinity : Math.max(0, breaker.untilMs - nowMs);
}

/** A call begins, which need not wait. The first one after a pause is the probe. */
export function called(breaker: Breaker): Breaker {
  return breaker.state === "open" ? { state: "probing", opens: breaker.opens } : breaker;
}

/**
 * A call has ended. Others than the probe may have begun long before: that they failed is no news
 * to a breaker that is not closed, that they were answered closes it.
 */
export function heard(
  breaker: Breaker,
  news: News,
  { isProbe, nowMs, rules }: { isProbe: boolean; nowMs: number; rules: BreakerRules },
): Breaker {
  if (news === "alive") return CLOSED;
  if (typeof news === "object") return paused(breaker, nowMs + news.pauseMs);
  const isProbing = breaker.state === "probing" && isProbe;
  if (news === "unknown") {
    // Nothing was found out: the next call is the probe.
    return isProbing ? { state: "open", untilMs: nowMs, opens: breaker.opens } : breaker;
  }
  if (isProbing) return opened(breaker.opens + 1, nowMs, rules);
  if (breaker.state !== "closed") return breaker;
  const failures = breaker.failures + 1;
  return failures < rules.failuresMax ? { state: "closed", failures } : opened(1, nowMs, rules);
}

function opened(opens: number, nowMs: number, { openMs, openMsMax }: BreakerRules): Breaker {
  const forMs = Math.min(openMsMax, openMs * 2 ** Math.min(opens - 1, 30));
  return { state: "open", untilMs: nowMs + forMs, opens };
}

/** It answers, so the next pause for a failure is a short one again. */
function paused(breaker: Breaker, untilMs: number): Breaker {
  const before = breaker.state === "open" ? breaker.untilMs : 0;
  return { state: "open", untilMs: Math.max(before, untilMs), opens: 0 };
}
