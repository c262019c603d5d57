import type { Clock } from "../base/clock.ts";

/** As much as is done in this time is worth holding ready. */
const AHEAD_SECONDS = 0.1;
const PREFETCH_MAX = 1_000;
const MEASURE_MS = 20;
/** Two batches of ends: one on its way, one that is gathered. */
const UNANSWERED_MAX = 4_000;
/** Of one key: more waiting in memory help nobody. */
export const PER_KEY_MAX = 50;
const PER_KEY_MIN = 2;

/** What a worker has in hand. */
export interface Holding {
  readonly active: number;
  /** Claimed and free to start. */
  readonly ready: number;
  /** Ended, and the database has not answered for it. */
  readonly unanswered: number;
}

export interface KeyedHolding extends Holding {
  /** Claimed, behind another one of their key; of one key no more than a few. */
  readonly behind: number;
}

/**
 * How many tasks to hold beyond the slots. Short tasks would wait for a round trip each; long ones
 * must not be kept from other workers. So it follows the rate at which tasks end here, and is
 * nothing when a slot's task takes longer than a round trip is worth.
 */
export class Prefetch {
  readonly #clock: Clock;
  readonly #concurrency: number;
  #size = 0;
  #atMs: number;
  #count = 0;
  #perSecond = 0;
  #filled = 0;

  constructor(clock: Clock, concurrency: number) {
    this.#clock = clock;
    this.#concurrency = concurrency;
    this.#atMs = clock.now();
  }

  get size(): number {
    return this.#size;
  }

  /** `settled` only grows. */
  measure(settled: number): void {
    const elapsedMs = this.#clock.now() - this.#atMs;
    if (elapsedMs < MEASURE_MS) return;
    const rate = ((settled - this.#count) / elapsedMs) * 1000;
    // Follows a rise at once, a fall by halves: a pause of the producer is no news.
    this.#perSecond = Math.max(rate, (this.#perSecond + rate) / 2);
    this.#atMs = this.#clock.now();
    this.#count = settled;
    const ahead = Math.floor(this.#perSecond * AHEAD_SECONDS);
    this.#size = ahead < this.#concurrency ? 0 : Math.min(PREFETCH_MAX, ahead);
  }

  /**
   * How many to ask for. Nothing while more than half of the prefetch is left, or while so much has
   * ended that the database did not answer for yet: who claims faster than it completes would hold
   * more and more.
   */
  want({ active, ready, unanswered }: Holding): number {
    if (ready > this.#size / 2 || unanswered > UNANSWERED_MAX) return 0;
    return this.#concurrency + this.#size - active - ready;
  }

  /**
   * How many keyed ones to ask for. They wait for each other, so more of them are held than slots
   * would take, and what waits must not keep other keys from slots that nobody uses. What has ended
   * may speak for a slot as well: its answer lets the next one of its key go. In few, large claims.
   */
  wantKeyed({ active, ready, unanswered, behind }: KeyedHolding): number {
    const most = 2 * (this.#concurrency + this.#size);
    const room = most - active - ready - behind;
    // A handler that outlives its timeout runs, and its task has ended.
    const idle = this.#concurrency - active - ready - Math.max(0, unanswered);
    return Math.max(room < most / 4 ? 0 : room, idle);
  }

  /** Of a key of which so many wait here, no more are asked for. */
  get perKey(): number {
    return Math.max(PER_KEY_MIN, Math.min(PER_KEY_MAX, this.#size));
  }

  /** All lanes were asked, and so many wait to start now. */
  filled(waiting: number): void {
    this.#filled = waiting;
  }

  /**
   * How many to ask for of lanes that have nothing here, while no more is wanted of all: as many
   * again, and at least a turn. When nothing waits, none: then the next free slot is theirs. In few
   * and large claims, as above.
   */
  reserve(waiting: number, turn: number): number {
    const most = Math.max(this.#concurrency + this.#size, turn);
    const room = this.#filled + most - waiting;
    return waiting === 0 || room < most / 2 ? 0 : room;
  }
}
