import type { Clock } from "../../base/clock.ts";
import { LimitError } from "../../base/errors.ts";

export interface RateLimits {
  /** Calls of one tenant that are allowed in the long run. */
  readonly perSecond: number;
  /** Calls that may come at once after a rest. */
  readonly burst: number;
}

interface Bucket {
  tokens: number;
  filledAtMs: number;
}

const TENANTS_MAX = 10_000;

/** A bucket of tokens per tenant, in this process: each server allows as much. */
export class RateLimiter {
  readonly #limits: RateLimits;
  readonly #clock: Clock;
  readonly #buckets = new Map<string, Bucket>();

  constructor(limits: RateLimits, clock: Clock) {
    this.#limits = limits;
    this.#clock = clock;
  }

  /** Throws a LimitError that says when to come back. */
  take(tenant: string): void {
    const { perSecond, burst } = this.#limits;
    const nowMs = this.#clock.now();
    const bucket = this.#buckets.get(tenant) ?? { tokens: burst, filledAtMs: nowMs };
    const passedSeconds = (nowMs - bucket.filledAtMs) / 1000;
    bucket.tokens = Math.min(burst, bucket.tokens + passedSeconds * perSecond);
    bucket.filledAtMs = nowMs;
    this.#keep(tenant, bucket);
    if (bucket.tokens < 1) {
      const retryAfterMs = Math.ceil(((1 - bucket.tokens) / perSecond) * 1000);
      throw new LimitError(`more than ${perSecond} calls a second; come back later`, retryAfterMs);
    }
    bucket.tokens -= 1;
  }

  /** Those that called last are kept. A tenant that is forgotten has rested for long. */
  #keep(tenant: string, bucket: Bucket): void {
    this.#buckets.delete(tenant);
    this.#buckets.set(tenant, bucket);
    if (this.#buckets.size <= TENANTS_MAX) return;
    const [oldest] = this.#buckets.keys();
    if (oldest !== undefined) this.#buckets.delete(oldest);
  }
}
