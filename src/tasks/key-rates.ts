import type { Clock } from "../base/clock.ts";
import type { Limits, Rate } from "./limits.ts";

/** Of queues that share keys. All of them hold: which is stricter depends on the window. */
export function keyRatesOf(
  queues: readonly string[],
  limits: ReadonlyMap<string, Limits>,
): readonly Rate[] {
  const rates = queues.flatMap((queue) => limits.get(queue)?.keyRate ?? []);
  const isFirst = (rate: Rate, place: number): boolean =>
    rates.findIndex((one) => one.count === rate.count && one.seconds === rate.seconds) === place;
  return rates.filter(isFirst);
}

/** A key with less than all its starts. */
export interface SpentKey {
  readonly tenant: string;
  readonly key: string;
  readonly allowed: number;
}

/**
 * Claims per key in any window of each period, counted by the one worker that owns the key's
 * bucket. Who takes a bucket over does not know what was spent before, so it waits for one period.
 */
export class KeyRates {
  readonly #each: readonly KeyRate[];

  constructor(rates: readonly Rate[], clock: Clock) {
    this.#each = rates.map((rate) => new KeyRate(rate, clock));
  }

  restart(): void {
    for (const one of this.#each) one.restart();
  }

  /** Starts allowed of a key that was not used since the restart. */
  fresh(): number {
    return Math.min(...this.#each.map((one) => one.fresh()));
  }

  spend(tenant: string, key: string): void {
    for (const one of this.#each) one.spend(tenant, key);
  }

  /** By each rate: a key may be in it more than once, and the least counts. */
  spent(): SpentKey[] {
    return this.#each.flatMap((one) => one.spent());
  }

  /** Milliseconds until some key that has none left may start again, or sooner. */
  nextMs(): number {
    return Math.min(...this.#each.map((one) => one.nextMs()));
  }
}

interface Starts {
  readonly tenant: string;
  readonly key: string;
  /** When, on the worker's clock; oldest first, none older than the period. */
  readonly atMs: number[];
}

/** One of them. */
class KeyRate {
  readonly #rate: Rate;
  readonly #clock: Clock;
  readonly #starts = new Map<string, Starts>();
  #sinceMs: number;

  constructor(rate: Rate, clock: Clock) {
    this.#rate = rate;
    this.#clock = clock;
    this.#sinceMs = clock.now();
  }

  restart(): void {
    this.#starts.clear();
    this.#sinceMs = this.#clock.now();
  }

  fresh(): number {
    return this.#clock.now() - this.#sinceMs >= this.#periodMs ? this.#rate.count : 0;
  }

  spend(tenant: string, key: string): void {
    const id = JSON.stringify([tenant, key]);
    const known = this.#starts.get(id) ?? { tenant, key, atMs: [] };
    known.atMs.push(this.#clock.now());
    this.#starts.set(id, known);
  }

  /** Keys of which nothing counts any more are forgotten. */
  spent(): SpentKey[] {
    const edgeMs = this.#clock.now() - this.#periodMs;
    const left: SpentKey[] = [];
    for (const [id, { tenant, key, atMs }] of this.#starts) {
      while (atMs.length > 0 && (atMs[0] ?? 0) <= edgeMs) atMs.shift();
      if (atMs.length === 0) this.#starts.delete(id);
      else left.push({ tenant, key, allowed: Math.max(0, this.#rate.count - atMs.length) });
    }
    return left;
  }

  nextMs(): number {
    this.spent(); // Forgets what no longer counts.
    const now = this.#clock.now();
    let firstMs = this.fresh() > 0 ? Infinity : this.#sinceMs;
    for (const { atMs } of this.#starts.values()) {
      // The last of those that must be over.
      const at = atMs[atMs.length - this.#rate.count];
      if (at !== undefined && at < firstMs) firstMs = at;
    }
    return Math.max(1, firstMs + this.#periodMs - now);
  }

  /** A little longer than said: the server counts from when the claim reaches it. */
  get #periodMs(): number {
    return this.#rate.seconds * 1000 * MARGIN + MARGIN_MS;
  }
}

const MARGIN = 1.02;
const MARGIN_MS = 20;
