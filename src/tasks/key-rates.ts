import type { Clock } from "../base/clock.ts";
import type { Limits, Rate } from "./limits.ts";

/** Of several queues that share keys. Null: none of them has one. */
export function strictestKeyRate(
  queues: readonly string[],
  limits: ReadonlyMap<string, Limits>,
): Rate | null {
  const rates = queues.flatMap((queue) => limits.get(queue)?.keyRate ?? []);
  const perSecond = ({ count, seconds }: Rate): number => count / seconds;
  return rates.toSorted((a, b) => perSecond(a) - perSecond(b))[0] ?? null;
}

interface Starts {
  readonly tenant: string;
  readonly key: string;
  /** When, on the worker's clock; oldest first, none older than the period. */
  readonly atMs: number[];
}

/**
 * Claims per key in any window of the period, counted by the one worker that owns the key's bucket.
 * Who takes a bucket over does not know what was spent before, so it waits for one period.
 */
export class KeyRates {
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

  /** Starts allowed of a key that was not used since the restart. */
  fresh(): number {
    return this.#clock.now() - this.#sinceMs >= this.#periodMs ? this.#rate.count : 0;
  }

  spend(tenant: string, key: string): void {
    const id = JSON.stringify([tenant, key]);
    const known = this.#starts.get(id) ?? { tenant, key, atMs: [] };
    known.atMs.push(this.#clock.now());
    this.#starts.set(id, known);
  }

  /** Keys with less than all their starts. Those of which nothing counts any more are forgotten. */
  spent(): { tenant: string; key: string; allowed: number }[] {
    const edgeMs = this.#clock.now() - this.#periodMs;
    const left: { tenant: string; key: string; allowed: number }[] = [];
    for (const [id, { tenant, key, atMs }] of this.#starts) {
      while (atMs.length > 0 && (atMs[0] ?? 0) <= edgeMs) atMs.shift();
      if (atMs.length === 0) this.#starts.delete(id);
      else left.push({ tenant, key, allowed: Math.max(0, this.#rate.count - atMs.length) });
    }
    return left;
  }

  /** Milliseconds until some key that has none left may start again. */
  nextMs(): number {
    this.spent(); // Forgets what no longer counts.
    const now = this.#clock.now();
    const waits = this.fresh() > 0 ? [] : [this.#sinceMs + this.#periodMs - now];
    for (const { atMs } of this.#starts.values()) {
      if (atMs.length >= this.#rate.count) waits.push((atMs[0] ?? 0) + this.#periodMs - now);
    }
    return Math.max(1, Math.min(Infinity, ...waits));
  }

  /** A little longer than said: the server counts from when the claim reaches it. */
  get #periodMs(): number {
    return this.#rate.seconds * 1000 * MARGIN + MARGIN_MS;
  }
}

const MARGIN = 1.02;
const MARGIN_MS = 20;
