import {
  type Breaker,
  type BreakerRules,
  CLOSED,
  called,
  heard,
  type News,
  waitMs,
} from "./breaker.ts";

export interface TargetRules extends BreakerRules {
  /** Calls of one target under way at once. */
  readonly callsMax: number;
  /** Targets that are remembered. */
  readonly targetsMax: number;
}

/** What is to become of a task that wants to call its target. */
export type Admission =
  | { readonly kind: "call"; readonly isProbe: boolean }
  /** `turn` says when, or that it did not come. */
  | { readonly kind: "wait" }
  /** Its slot is worth more than its wait: it goes back for so long. */
  | { readonly kind: "later"; readonly ms: number; readonly why: "broken" | "full" };

export interface TargetsOptions {
  readonly rules: TargetRules;
  /** Milliseconds. */
  readonly now: () => number;
  /** Between 0 and 1. */
  readonly random: () => number;
}

interface Target {
  breaker: Breaker;
  active: number;
  readonly waiters: ((admission: Admission) => void)[];
  /** How long its calls took of late. */
  averageMs: number;
  /** When one of them ended, or the first of those began. */
  endedMs: number;
  /** By when what was sent away is to be back, one after another. */
  nextBackMs: number;
}

/** How fast the average follows. */
const NEWEST_WEIGHT = 0.2;
const AVERAGE_MS = 100;
const LATER_MS_MIN = 1_000;
/** However deep a line is: calls may become faster, and nobody calls the tasks back before. */
const LATER_MS_MAX = 15 * 60_000;
const SPACING_MS_MIN = 1;
/** A slot may be held for so short a wait: sending a task away takes longer. */
const WAIT_MS_MAX = 250;

/**
 * The places of targets, and who may have them. A target is a host of one tenant: what one tenant
 * does to a host is not held against another. Targets that are broken or slow take no more slots of
 * the pool than they have places: what would wait for longer than a moment is sent away, spread
 * over the time that those before it will take, so that most are sent away once.
 */
export class Targets {
  readonly #options: TargetsOptions;
  readonly #targets = new Map<string, Target>();
  #broken = 0;

  constructor(options: TargetsOptions) {
    this.#options = options;
  }

  get size(): number {
    return this.#targets.size;
  }

  /** Targets that are not called now. */
  get broken(): number {
    return this.#broken;
  }

  /** Takes a place if there is one. */
  enter(key: string): Admission {
    const { rules, now } = this.#options;
    const target = this.#targets.get(key) ?? this.#add(key);
    const pauseMs = waitMs(target.breaker, now());
    if (pauseMs > 0) return this.#later(target, pauseMs, "broken");
    if (target.active < rules.callsMax) return this.#take(target);
    return this.#expectedMs(target) <= WAIT_MS_MAX
      ? { kind: "wait" }
      : this.#later(target, 0, "full");
  }

  /**
   * Resolves with a place, or with what else is to be done when `giveUp` is called before. For who
   * was told to wait, at once.
   */
  turn(key: string): { readonly admitted: Promise<Admission>; readonly giveUp: () => void } {
    const target = this.#targets.get(key) ?? this.#add(key);
    let settle: (admission: Admission) => void = () => {};
    const admitted = new Promise<Admission>((resolve) => {
      settle = resolve;
    });
    target.waiters.push(settle);
    const giveUp = (): void => {
      const place = target.waiters.indexOf(settle);
      if (place < 0) return; // It has been told already.
      target.waiters.splice(place, 1);
      settle(this.#later(target, 0, "full"));
    };
    return { admitted, giveUp };
  }

  /**
   * A call has ended: its place goes to the next, and what it told of the target counts. True when
   * that broke it.
   */
  left(
    key: string,
    { isProbe }: { readonly isProbe: boolean },
    news: News,
    tookMs: number,
  ): boolean {
    const { rules, now } = this.#options;
    const target = this.#targets.get(key);
    if (target === undefined) return false;
    const { state } = target.breaker;
    target.active -= 1;
    target.endedMs = now();
    this.#turnTo(target, heard(target.breaker, news, { isProbe, nowMs: now(), rules }));
    if (news !== "unknown") target.averageMs += NEWEST_WEIGHT * (tookMs - target.averageMs);
    this.#callWaiters(target);
    if (isIdle(target) && target.breaker === CLOSED) this.#targets.delete(key);
    return target.breaker.state === "open" && state === "closed";
  }

  #callWaiters(target: Target): void {
    const { rules, now } = this.#options;
    const pauseMs = waitMs(target.breaker, now());
    if (pauseMs === 0 && target.active >= rules.callsMax) return;
    const settle = target.waiters.shift();
    if (settle === undefined) return;
    settle(pauseMs > 0 ? this.#later(target, pauseMs, "broken") : this.#take(target));
    this.#callWaiters(target);
  }

  #take(target: Target): Admission {
    if (target.active === 0) target.endedMs = this.#options.now();
    target.active += 1;
    const before = target.breaker;
    this.#turnTo(target, called(before));
    return { kind: "call", isProbe: target.breaker !== before };
  }

  #turnTo(target: Target, breaker: Breaker): void {
    this.#broken += Number(isBroken(breaker)) - Number(isBroken(target.breaker));
    target.breaker = breaker;
  }

  /** How long one more would wait: as the calls of late took, unless they have come to a halt. */
  #expectedMs({ averageMs, endedMs, waiters }: Target): number {
    const { rules, now } = this.#options;
    return Math.max((averageMs * (waiters.length + 1)) / rules.callsMax, now() - endedMs);
  }

  /** One after another, at the pace at which the target takes them. */
  #later(target: Target, pauseMs: number, why: "broken" | "full"): Admission {
    const { rules, now, random } = this.#options;
    const nowMs = now();
    // While a probe is under way: about when it will have been answered.
    const openMs = pauseMs === Infinity ? target.averageMs : pauseMs;
    const spacingMs = Math.max(SPACING_MS_MIN, target.averageMs / rules.callsMax);
    const earliestMs = nowMs + Math.max(LATER_MS_MIN, openMs);
    const atMs = Math.max(earliestMs, target.nextBackMs) + spacingMs;
    if (atMs - nowMs > LATER_MS_MAX) {
      const ms = Math.max(openMs, LATER_MS_MAX / 2) + (random() * LATER_MS_MAX) / 2;
      return { kind: "later", ms, why };
    }
    target.nextBackMs = atMs;
    return { kind: "later", ms: atMs - nowMs, why };
  }

  #add(key: string): Target {
    if (this.#targets.size >= this.#options.rules.targetsMax) this.#forget();
    const target = {
      breaker: CLOSED,
      active: 0,
      waiters: [],
      averageMs: AVERAGE_MS,
      endedMs: 0,
      nextBackMs: 0,
    };
    this.#targets.set(key, target);
    return target;
  }

  /** Those that nobody calls; first the ones that nothing is held against. */
  #forget(): void {
    const { targetsMax } = this.#options.rules;
    for (const isFine of [true, false]) {
      for (const [key, target] of this.#targets) {
        if (this.#targets.size < targetsMax) return;
        const mayGo = !isFine || !isBroken(target.breaker);
        if (!mayGo || !isIdle(target)) continue;
        this.#turnTo(target, CLOSED);
        this.#targets.delete(key);
      }
    }
  }
}

const isBroken = ({ state }: Breaker): boolean => state !== "closed";
const isIdle = ({ active, waiters }: Target): boolean => active === 0 && waiters.length === 0;
