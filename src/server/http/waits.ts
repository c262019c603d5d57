import { LimitError } from "../../base/errors.ts";
import type { HttpMetrics } from "./metrics.ts";

const RETRY_MS = 1_000;

/**
 * Bounds how many requests wait at the same time. As with bodies, one tenant has at most half of
 * the places, and the last quarter is for tenants that have none.
 */
export class Waits {
  readonly #max: number;
  readonly #metrics: HttpMetrics;
  readonly #tenants = new Map<string, number>();
  #count = 0;

  constructor(max: number, metrics: HttpMetrics) {
    this.#max = max;
    this.#metrics = metrics;
  }

  async during<T>(tenant: string, wait: () => Promise<T>): Promise<T> {
    if (!this.#fits(this.#tenants.get(tenant) ?? 0)) {
      const why = "too many calls wait here; wait less, or ask another server";
      throw new LimitError(why, RETRY_MS);
    }
    this.#change(tenant, 1);
    try {
      return await wait();
    } finally {
      this.#change(tenant, -1);
    }
  }

  #fits(own: number): boolean {
    if (own === 0) return this.#count < this.#max;
    return own + 1 <= this.#max / 2 && this.#count + 1 <= (this.#max * 3) / 4;
  }

  #change(tenant: string, by: number): void {
    const own = (this.#tenants.get(tenant) ?? 0) + by;
    if (own === 0) this.#tenants.delete(tenant);
    else this.#tenants.set(tenant, own);
    this.#count += by;
    this.#metrics.waits.set(this.#count);
  }
}
