import type { Clock } from "../base/clock.ts";
import type { Claim, ClaimedTask } from "./claimed-task.ts";
import type { Limits } from "./limits.ts";
import type { TaskMetrics } from "./metrics.ts";
import type { TaskSession } from "./session.ts";
import type { GrantProof } from "./sql/claim.ts";
import { readGrants, returnLimits, takeLimits, useStarts } from "./sql/limits.ts";

/** Starts that were taken for the next claim. */
interface Starts {
  readonly count: number;
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
  /** The limit was lowered: slots that come free go back instead of being used again. */
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
/** What is lost of an instant that becomes a Date. */
const ROUNDING_SECONDS = 0.002;

/**
 * This worker's share of the limits of its queues. Slots are held over many claims, so a limit that
 * does not bind costs nothing; starts are taken for one claim, and what it does not use goes back.
 * A worker that is taken for dead loses its slots when its last claim is gone; it may not know, so
 * every claim names the slots it relies on.
 */
export class Limiter {
  readonly #session: TaskSession;
  readonly #options: LimiterOptions;
  readonly #shares = new Map<string, Share>();
  #incarnation = -1;

  constructor(session: TaskSession, options: LimiterOptions) {
    this.#session = session;
    this.#options = options;
  }

  /** As the database has them: a person may have changed them. */
  use(limits: ReadonlyMap<string, Limits>): void {
    for (const [queue, one] of limits) {
      const isLimited = one.concurrency !== null || one.rate !== null;
      const known = this.#shares.get(queue);
      if (known !== undefined) {
        if ((one.concurrency ?? Infinity) < (known.limits.concurrency ?? Infinity)) {
          known.isShrinking = true;
        }
        known.limits = one;
      } else if (isLimited) {
        this.#shares.set(queue, {
          limits: one,
          slots: 0,
          starts: undefined,
          lateMs: LATE_MS_MIN,
          usedAtMs: 0,
          retryAtMs: -Infinity,
          isShrinking: false,
        });
      }
    }
  }

  get queues(): string[] {
    return [...this.#shares.keys()];
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
    const starts = rate === null ? Infinity : (share.starts?.count ?? 0);
    return Math.max(0, Math.min(slots, starts));
  }

  /** What the claims of limited queues rely on. */
  proofs(): GrantProof[] {
    return [...this.#shares].flatMap(([queue, share]) => {
      const deadline = share.starts?.deadline ?? null;
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
    const wantSlots =
      concurrency === null
        ? 0
        : Math.max(0, Math.min(want, concurrency) + held(queue) - share.slots);
    // Those that are left go first: they are counted apart from new ones, and have their own end.
    const wantStarts = rate === null || share.starts !== undefined ? 0 : want;
    share.usedAtMs = clock.now();
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
      share.starts = { count, slice, deadline, askedAtMs };
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
    const { count: taken, slice, askedAtMs } = share.starts;
    share.starts = undefined;
    const nowMs = this.#options.clock.now();
    const tookMs = nowMs - askedAtMs;
    if (count === 0 && tookMs >= share.lateMs) share.retryAtMs = nowMs + TOO_LATE_MS;
    share.lateMs = Math.min(Math.max(LATE_MS_MIN, 2 * tookMs), LATE_MS_MAX);
    if (slice === null) return;
    const unused = Math.max(0, taken - count);
    const usedBy = claim === undefined ? null : this.#madeBy(claim);
    await useStarts(this.#session, queue, slice, { used: count, unused, usedBy });
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

  /** Gives back slots that nothing here has used for a while; all that are free when it stops. */
  async trim(isStopping = false): Promise<void> {
    for (const [queue, share] of this.#shares) {
      const idle = share.slots - this.#options.held(queue);
      const isRecent = this.#options.clock.now() - share.usedAtMs < IDLE_MS;
      if (idle <= 0 || (isRecent && !isStopping)) continue;
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

  /** Milliseconds until a held-back queue is worth asking again, or slots are to be given back. */
  get restMs(): number {
    const now = this.#options.clock.now();
    const waits = [...this.#shares].flatMap(([queue, share]) => [
      ...(share.retryAtMs > now ? [share.retryAtMs - now] : []),
      ...(share.slots > this.#options.held(queue) ? [share.usedAtMs + IDLE_MS - now] : []),
    ]);
    return Math.max(1, Math.min(Infinity, ...waits));
  }

  /** The server may have crashed, and what it had not written yet is gone. */
  async #reread(): Promise<void> {
    if (this.#shares.size === 0 || this.#incarnation === this.#session.incarnation) return;
    const grants = await readGrants(this.#session, this.#options.workerId);
    this.#incarnation = this.#session.incarnation;
    for (const [queue, share] of this.#shares) {
      share.slots = grants.get(queue) ?? 0;
      share.starts = undefined;
    }
  }

  /** A claim found its proof wrong: what we hold must be read again. */
  doubt(): void {
    this.#incarnation = -1;
  }
}
