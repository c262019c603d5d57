import type { Clock } from "../base/clock.ts";
import type { Rate } from "./limits.ts";

interface Bucket {
  readonly tenant: string;
  readonly key: string;
  tokens: number;
  atMs: number;
}

/**
 * Claims per key and period, counted by the one worker that owns the key's bucket. Who takes over
 * does not know what was spent before, so every key begins with nothing and is filled by time.
 */
export class KeyRates {
  readonly #rate: Rate;
  readonly #clock: Clock;
  readonly #buckets = new Map<string, Bucket>();
  #sinceMs: number;

  constructor(rate: Rate, clock: Clock) {
    this.#rate = rate;
    this.#clock = clock;
    this.#sinceMs = clock.now();
  }

  restart(): void {
    this.#buckets.clear();
    this.#sinceMs = this.#clock.now();
  }

  /** Tokens of a key that was not used since the restart. */
  fresh(): number {
    return Math.floor(this.#filled(0, this.#sinceMs));
  }

  spend(tenant: string, key: string): void {
    const id = JSON.stringify([tenant, key]);
    const now = this.#clock.now();
    const known = this.#buckets.get(id) ?? { tenant, key, tokens: 0, atMs: this.#sinceMs };
    known.tokens = this.#filled(known.tokens, known.atMs) - 1;
    known.atMs = now;
    this.#buckets.set(id, known);
  }

  /** Keys with less than all their tokens. Those that are full again are forgotten. */
  spent(): { tenant: string; key: string; tokens: number }[] {
    const left: { tenant: string; key: string; tokens: number }[] = [];
    for (const [id, bucket] of this.#buckets) {
      const tokens = this.#filled(bucket.tokens, bucket.atMs);
      // A fresh key has no more than this one: forgetting it gives nothing away.
      if (tokens >= this.#rate.count && this.fresh() >= this.#rate.count) this.#buckets.delete(id);
      else left.push({ tenant: bucket.tenant, key: bucket.key, tokens: Math.floor(tokens) });
    }
    return left;
  }

  /** Milliseconds until some key that has none gets a token. */
  nextMs(): number {
    const perTokenMs = (this.#rate.seconds * 1000) / this.#rate.count;
    const isShort = this.fresh() < 1 || this.spent().some(({ tokens }) => tokens < 1);
    return isShort ? perTokenMs : Infinity;
  }

  #filled(tokens: number, sinceMs: number): number {
    const { count, seconds } = this.#rate;
    const gained = ((this.#clock.now() - sinceMs) / 1000 / seconds) * count;
    return Math.min(count, tokens + gained);
  }
}
