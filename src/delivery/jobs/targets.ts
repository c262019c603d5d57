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
  /** Of these, so many are for high priority only. */
  readonly highCallsMin: number;
  /** Of all targets together, so many of high priority may wait in their slots for a place. */
  readonly highWaitersMax: number;
}

/** How a task stands to the others that want a place. */
export interface Standing {
  /** By priority and by how long it has waited: who has more comes first. */
  readonly rank: number;
  /** Slots are reserved for such as it. */
  readonly isHigh: boolean;
}

/** Of a call that may be made; to be given back when it has ended. */
export interface Place {
  /** It finds out for all whether the target answers again. */
  readonly isProbe: boolean;
  readonly isHigh: boolean;
}

/** What is to become of a task that wants to call its target. */
export type Admission =
  | ({ readonly kind: "call" } & Place)
  /** `turn` says when, or that it did not come. */
  | { readonly kind: "wait" }
  /** Its slot is worth more than its wait: it goes back for so long. */
  | { readonly kind: "later"; readonly ms: number; readonly why: "broken" | "full" };

export interface Turn {
  readonly admitted: Promise<Admission>;
  readonly giveUp: () => void;
}

export interface TargetsOptions {
  readonly rules: TargetRules;
  /** Milliseconds. */
  readonly now: () => number;
  /** Between 0 and 1. */
  readonly random: () => number;
}

interface Waiter extends Standing {
  readonly settle: (admission: Admission) => void;
}

interface Target {
  breaker: Breaker;
  active: number;
  /** Of these, those that are not of high priority. */
  activeOther: number;
  /** Those who rank higher first, and of equals those who came first. */
  readonly waiters: Waiter[];
  /** How long its calls took of late. */
  averageMs: number;
  /** When one of them ended, or the first of those began. */
  endedMs: number;
  /** By when what was sent away is to be back, one after another: high ones, and the others. */
  readonly nextBackMs: { high: number; other: number };
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
/** One that is reserved may be held for longer: it is there for whoever is next. */
const HIGH_WAIT_MS_MAX = 10_000;

/**
 * The places of targets, and who may have them. A target is a host of one tenant: what one tenant
 * does to a host is not held against another. Targets that are broken or slow take no more slots of
 * the pool than they have places: what would wait for longer than a moment is sent away, spread
 * over the time that those before it will take, so that most are sent away once. Who ranks higher
 * has the next place. Some places are for high priority: however slow the others are, and however
 * long they have waited, these are free for it.
 */
export class Targets {
  readonly #options: TargetsOptions;
  readonly #targets = new Map<string, Target>();
  #highWaiters = 0;

  constructor(options: TargetsOptions) {
    this.#options = options;
  }

  get size(): number {
    return this.#targets.size;
  }

  /**
   * Targets that are not called now. Counted when somebody asks: a pause ends by itself, and nobody
   * may have anything for the target then.
   */
  get broken(): number {
    const nowMs = this.#options.now();
    let count = 0;
    for (const { breaker } of this.#targets.values()) if (waitMs(breaker, nowMs) > 0) count += 1;
    return count;
  }

  /** Takes a place if there is one. */
  enter(key: string, standing: Standing): Admission {
    const { rules, now } = this.#options;
    const target = this.#targets.get(key) ?? this.#add(key);
    const pauseMs = waitMs(target.breaker, now());
    if (pauseMs > 0) return this.#later(target, standing, pauseMs, "broken");
    if (this.#hasPlace(target, standing)) return this.#take(target, standing);
    const isPatient = standing.isHigh && this.#highWaiters < rules.highWaitersMax;
    return this.#expectedMs(target, standing) <= (isPatient ? HIGH_WAIT_MS_MAX : WAIT_MS_MAX)
      ? { kind: "wait" }
      : this.#later(target, standing, 0, "full");
  }

  /**
   * Resolves with a place, or with what else is to be done when `giveUp` is called before. For who
   * was told to wait, at once.
   */
  turn(key: string, standing: Standing): Turn {
    const target = this.#targets.get(key) ?? this.#add(key);
    let settle: (admission: Admission) => void = () => {};
    const admitted = new Promise<Admission>((resolve) => {
      settle = resolve;
    });
    const waiter = { ...standing, settle };
    target.waiters.splice(placeOf(target.waiters, standing), 0, waiter);
    if (standing.isHigh) this.#highWaiters += 1;
    const giveUp = (): void => {
      const place = target.waiters.indexOf(waiter);
      if (place < 0) return; // It has been told already.
      this.#leave(target, place);
      settle(this.#later(target, standing, 0, "full"));
    };
    return { admitted, giveUp };
  }

  /**
   * A call has ended: its place goes to the next, and what it told of the target counts. True when
   * that broke it.
   */
  left(key: string, { isProbe, isHigh }: Place, news: News, tookMs: number): boolean {
    const { rules, now } = this.#options;
    const target = this.#targets.get(key);
    if (target === undefined) return false;
    const { state } = target.breaker;
    target.active -= 1;
    if (!isHigh) target.activeOther -= 1;
    target.endedMs = now();
    target.breaker = heard(target.breaker, news, { isProbe, nowMs: now(), rules });
    if (news !== "unknown") target.averageMs += NEWEST_WEIGHT * (tookMs - target.averageMs);
    this.#callWaiters(target);
    if (isIdle(target) && target.breaker === CLOSED) this.#targets.delete(key);
    return target.breaker.state === "open" && state === "closed";
  }

  #callWaiters(target: Target): void {
    const pauseMs = waitMs(target.breaker, this.#options.now());
    // Those who may not have a place that is free, because it is for others, do not keep it.
    const place = target.waiters.findIndex((one) => pauseMs > 0 || this.#hasPlace(target, one));
    const first = place < 0 ? undefined : this.#leave(target, place);
    if (first === undefined) return;
    const isLate = pauseMs > 0;
    first.settle(
      isLate ? this.#later(target, first, pauseMs, "broken") : this.#take(target, first),
    );
    this.#callWaiters(target);
  }

  #hasPlace({ active, activeOther }: Target, { isHigh }: Standing): boolean {
    const { callsMax, highCallsMin } = this.#options.rules;
    return active < callsMax && (isHigh || activeOther < callsMax - highCallsMin);
  }

  #leave(target: Target, place: number): Waiter | undefined {
    const [waiter] = target.waiters.splice(place, 1);
    if (waiter?.isHigh === true) this.#highWaiters -= 1;
    return waiter;
  }

  #take(target: Target, { isHigh }: Standing): Admission {
    if (target.active === 0) target.endedMs = this.#options.now();
    target.active += 1;
    if (!isHigh) target.activeOther += 1;
    const before = target.breaker;
    target.breaker = called(before);
    return { kind: "call", isProbe: target.breaker !== before, isHigh };
  }

  /** How long one more would wait: as the calls of late took, unless they have come to a halt. */
  #expectedMs({ averageMs, endedMs, waiters }: Target, standing: Standing): number {
    const { rules, now } = this.#options;
    const before = placeOf(waiters, standing);
    return Math.max((averageMs * (before + 1)) / rules.callsMax, now() - endedMs);
  }

  /** One after another, at the pace at which the target takes them. */
  #later(target: Target, { isHigh }: Standing, pauseMs: number, why: "broken" | "full"): Admission {
    const { rules, now, random } = this.#options;
    const nowMs = now();
    // While a probe is under way: about when it will have been answered.
    const openMs = pauseMs === Infinity ? target.averageMs : pauseMs;
    const spacingMs = Math.max(SPACING_MS_MIN, target.averageMs / rules.callsMax);
    const earliestMs = nowMs + Math.max(LATER_MS_MIN, openMs);
    const line = isHigh ? "high" : "other";
    const atMs = Math.max(earliestMs, target.nextBackMs[line]) + spacingMs;
    if (atMs - nowMs > LATER_MS_MAX) {
      const ms = Math.max(openMs, LATER_MS_MAX / 2) + (random() * LATER_MS_MAX) / 2;
      return { kind: "later", ms, why };
    }
    target.nextBackMs[line] = atMs;
    return { kind: "later", ms: atMs - nowMs, why };
  }

  #add(key: string): Target {
    if (this.#targets.size >= this.#options.rules.targetsMax) this.#forget();
    const target = {
      breaker: CLOSED,
      active: 0,
      activeOther: 0,
      waiters: [],
      averageMs: AVERAGE_MS,
      endedMs: 0,
      nextBackMs: { high: 0, other: 0 },
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
        this.#targets.delete(key);
      }
    }
  }
}

/** Behind all who rank as high. */
function placeOf(waiters: readonly Waiter[], { rank }: Standing): number {
  const place = waiters.findIndex((waiter) => waiter.rank < rank);
  return place < 0 ? waiters.length : place;
}

const isBroken = ({ state }: Breaker): boolean => state !== "closed";
const isIdle = ({ active, waiters }: Target): boolean => active === 0 && waiters.length === 0;
