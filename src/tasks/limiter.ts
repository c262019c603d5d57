import type { Clock } from "../base/clock.ts";
import type { Claim, ClaimedTask } from "./claimed-task.ts";
import { type Limits, NO_LIMITS, type Rate } from "./limits.ts";
import type { TaskMetrics } from "./metrics.ts";
import type { TaskSession } from "./session.ts";
import type { GrantProof } from "./sql/claim.ts";
import { bookLimits, readGrants, returnLimits, takeLimits, useStarts } from "./sql/limits.ts";

/** Starts that were taken for the next claims. */
interface Starts {
  /** What is left of them. */
  count: number;
  used: number;
  /** Seconds since 1970 by which they had been used. Null: by now. */
  usedBy: number | null;
  /** Whether they are more than one claim needs. */
  readonly isSpare: boolean;
  /** Where they are counted. Null: the limit is gone. */
  readonly slice: string | null;
  /** Until when a claim may use them. */
  readonly deadline: number | null;
  readonly askedAtMs: number;
}

interface Share {
  limits: Limits;
  /** Slots that are ours; every claim proves it again. */
  slots: number;
  starts: Starts | undefined;
  /** How late a claim may come after its starts were counted. */
  lateMs: number;
  usedAtMs: number;
  retryAtMs: number;
  /** The limit is new or lower: slots that come free go back instead of being used again. */
  isShrinking: boolean;
}

export interface LimiterOptions {
  readonly workerId: string;
  readonly leaseSeconds: number;
  readonly clock: Clock;
  readonly metrics: TaskMetrics;
  /** Tasks of the queue that this worker holds. */
  readonly held: (queue: string) => number;
}

/** Slots that were not used for so long are given back, for others. */
const IDLE_MS = 200;
const RETRY_MS = 100;
/** A claim comes this late at most, or later when the last one of a busy process did. */
const LATE_MS_MIN = 1_000;
/** Starts that a worker took and died with are nobody's for so long, and for a period. */
const LATE_MS_MAX = 60_000;
/** After a claim that came too late. */
const TOO_LATE_MS = 10;
/** Of a rate that allows many times more, starts are taken for so many claims at once. */
const CLAIMS_AHEAD = 4;
const AHEAD_SHARE_MAX = 0.1;
/** What is lost of an instant that becomes a Date. */
const ROUNDING_SECONDS = 0.002;

/**
 * This worker's share of the limits of its queues. Slots are held over many claims, and starts are
 * taken for several if the rate allows many more, so that a limit which does not bind costs next to
 * nothing. Else they are taken for one claim, and what it does not use goes back.
 * A worker that is taken for dead loses slots under which no task stands; it may not know, so every
 * claim names the slots it relies on.
 *
 * What runs when a limit comes to its queue is given slots with it by the database, more than there
 * are if need be. What this worker claims before it has heard of it is booked when it has.
 */
export class Limiter {
  readonly #session: TaskSession;
  readonly #options: LimiterOptions;
  readonly #shares = new Map<string, Share>();
  #incarnation = -1;
  #doubts = 0;

  constructor(session: TaskSession, options: LimiterOptions) {
    this.#session = session;
    this.#options = options;
  }

  /** As the database has them: a person may have changed them. */
  use(limits: ReadonlyMap<string, Limits>): void {
    for (const [queue, one] of limits) {
      const known = this.#shares.get(queue);
      if (known === undefined && one.concurrency === null && one.rate === null) continue;
      const share = known ?? newShare();
      const before = share.limits.concurrency ?? Infinity;
      const isLower = (one.concurrency ?? Infinity) < before;
      if (isLower && before === Infinity) this.doubt(); // We may have slots for what runs.
      share.isShrinking = one.concurrency !== null && (isLower || share.isShrinking);
      share.limits = one;
      this.#shares.set(queue, share);
    }
  }

  /** Those that have limits now. */
  get queues(): string[] {
    return [...this.#shares.keys()].filter((queue) => this.isLimited(queue));
  }

  isLimited(queue: string): boolean {
    const limits = this.#shares.get(queue)?.limits;
    return limits !== undefined && (limits.concurrency !== null || limits.rate !== null);
  }

  /** How many tasks of the queue may be claimed now, with what was taken. */
  allowed(queue: string): number {
    const share = this.#shares.get(queue);
    if (share === undefined || !this.isLimited(queue)) return Infinity;
    const { concurrency, rate } = share.limits;
    if (share.isShrinking) return 0;
    const slots = concurrency === null ? Infinity : share.slots - this.#options.held(queue);
    const starts = rate === null ? Infinity : (this.#startsOf(share)?.count ?? 0);
    return Math.max(0, Math.min(slots, starts));
  }

  /** Those that claims have left are good for a while only: the next one must not come too late. */
  #startsOf({ starts, lateMs }: Share): Starts | undefined {
    if (starts === undefined || starts.used === 0) return starts;
    return this.#options.clock.now() - starts.askedAtMs > lateMs / 2 ? undefined : starts;
  }

  /** What the claims of limited queues rely on. */
  proofs(): GrantProof[] {
    return [...this.#shares].flatMap(([queue, share]) => {
      const deadline = this.#startsOf(share)?.deadline ?? null;
      const slots = share.limits.concurrency === null ? 0 : share.slots;
      return slots === 0 && deadline === null ? [] : [{ queue, slots, deadline }];
    });
  }

  /** Takes what is missing to claim `want` tasks of the queue. */
  async take(queue: string, want: number): Promise<void> {
    await this.#reread();
    const share = this.#shares.get(queue);
    if (share === undefined || !this.isLimited(queue) || want <= 0) return;
    if (share.isShrinking) await this.#shrink(queue, share);
    const { clock, held, workerId, metrics } = this.#options;
    if (clock.now() < share.retryAtMs) return;
    const { concurrency, rate } = share.limits;
    if (concurrency !== null && held(queue) > share.slots) {
      share.isShrinking = true;
      share.slots = await bookLimits(this.#session, queue, workerId);
    }
    const wantSlots =
      concurrency === null
        ? 0
        : Math.max(0, Math.min(want, concurrency) + held(queue) - share.slots);
    share.usedAtMs = clock.now();
    const left = this.#startsOf(share);
    // Too few of those that were taken ahead would make small claims, of rows instead of packs.
    const isRest = left?.isSpare === true && left.used > 0 && left.count < want;
    if (left === undefined || isRest) await this.#settle(queue, share);
    // Those that are left go first: they are counted apart from new ones, and have their own end.
    const wantStarts = rate === null || share.starts !== undefined ? 0 : startsFor(want, rate);
    if (wantSlots === 0 && wantStarts === 0) return;
    const askedAtMs = clock.now();
    const taken = await takeLimits(this.#session, queue, workerId, {
      slots: wantSlots,
      starts: wantStarts,
      lateSeconds: share.lateMs / 1000,
    });
    if (concurrency !== null) share.slots += taken.slots;
    // Slots are granted again: all of us together hold less than the limit.
    if (taken.slots > 0) share.isShrinking = false;
    if (taken.starts > 0) {
      const { starts: count, slice, deadline } = taken;
      const isSpare = wantStarts > want;
      share.starts = { count, used: 0, usedBy: 0, isSpare, slice, deadline, askedAtMs };
    }
    if (this.allowed(queue) > 0) return;
    metrics.limitWaits.add(1, { queue });
    const retryMs = taken.retrySeconds === null ? RETRY_MS : taken.retrySeconds * 1000;
    share.retryAtMs = clock.now() + Math.max(1, retryMs);
  }

  /** A claim took so many: those count from when it was made, and what it left goes back. */
  async spent(queue: string, count: number, claim?: Claim): Promise<void> {
    const share = this.#shares.get(queue);
    if (share?.starts === undefined) return;
    const { starts } = share;
    const nowMs = this.#options.clock.now();
    const tookMs = nowMs - share.usedAtMs;
    if (count === 0 && tookMs >= share.lateMs) share.retryAtMs = nowMs + TOO_LATE_MS;
    share.lateMs = Math.min(Math.max(LATE_MS_MIN, 2 * tookMs), LATE_MS_MAX);
    starts.count = Math.max(0, starts.count - count);
    starts.used += count;
    const isKnown = starts.usedBy !== null && claim !== undefined;
    if (count > 0) starts.usedBy = isKnown ? this.#madeBy(claim) : null;
    // What is left is for the next claim, which comes soon or not at all: see `trim`.
    if (count > 0 && starts.isSpare && starts.count > 0) return;
    await this.#settle(queue, share);
  }

  /** Says what became of starts that were taken. */
  async #settle(queue: string, share: Share): Promise<void> {
    const { starts } = share;
    share.starts = undefined;
    if (starts === undefined || starts.slice === null) return;
    const { used, count: unused, usedBy } = starts;
    await useStarts(this.#session, queue, starts.slice, { used, unused, usedBy });
  }

  /** Seconds since 1970, on the server's clock; never before it was made. */
  #madeBy({ until }: Claim): number {
    return until.getTime() / 1000 - this.#options.leaseSeconds + ROUNDING_SECONDS;
  }

  async #shrink(queue: string, share: Share): Promise<void> {
    const idle = share.slots - this.#options.held(queue);
    if (idle <= 0) return;
    share.slots -= idle;
    await returnLimits(this.#session, queue, this.#options.workerId, idle);
  }

  /** Gives back what nothing here has used for a while; all that is free when it stops. */
  async trim(isStopping = false): Promise<void> {
    await this.#reread();
    for (const [queue, share] of this.#shares) {
      const isRecent = this.#options.clock.now() - share.usedAtMs < IDLE_MS;
      if (isRecent && !isStopping) continue;
      await this.#settle(queue, share);
      await this.#shrink(queue, share);
    }
  }

  /** For a claim of several queues. */
  async takeAll(queues: readonly string[], want: number): Promise<void> {
    for (const queue of queues) await this.take(queue, want);
  }

  /** A claim of several queues took these. */
  async spentAll(queues: readonly string[], tasks: readonly ClaimedTask[]): Promise<void> {
    const counts = new Map<string, number>();
    for (const { queue } of tasks) counts.set(queue, (counts.get(queue) ?? 0) + 1);
    for (const queue of queues) await this.spent(queue, counts.get(queue) ?? 0, tasks[0]?.claim);
  }

  /** Milliseconds until a held-back queue is worth asking again, or something is given back. */
  get restMs(): number {
    const now = this.#options.clock.now();
    const waits = [...this.#shares].flatMap(([queue, share]) => {
      const isIdle = share.slots > this.#options.held(queue) || share.starts !== undefined;
      return [
        ...(share.retryAtMs > now ? [share.retryAtMs - now] : []),
        ...(isIdle ? [share.usedAtMs + IDLE_MS - now] : []),
      ];
    });
    return Math.max(1, Math.min(Infinity, ...waits));
  }

  /** The server may have crashed, and what it had not written yet is gone. */
  async #reread(): Promise<void> {
    if (this.#shares.size === 0 || this.#incarnation === this.#session.incarnation) return;
    const doubts = this.#doubts;
    const grants = await readGrants(this.#session, this.#options.workerId);
    if (doubts === this.#doubts) this.#incarnation = this.#session.incarnation;
    for (const [queue, share] of this.#shares) {
      share.slots = grants.get(queue) ?? 0;
      share.starts = undefined;
    }
  }

  /** What we hold may be otherwise, as when a claim found its proof wrong: it is read again. */
  doubt(): void {
    this.#incarnation = -1;
    this.#doubts += 1;
  }
}

/** How many are asked for, for a claim of `want` tasks. */
function startsFor(want: number, rate: Rate): number {
  const ahead = want * CLAIMS_AHEAD;
  return ahead <= rate.count * AHEAD_SHARE_MAX ? ahead : want;
}

const newShare = (): Share => ({
  limits: NO_LIMITS,
  slots: 0,
  starts: undefined,
  lateMs: LATE_MS_MIN,
  usedAtMs: -Infinity,
  retryAtMs: -Infinity,
  isShrinking: false,
});
