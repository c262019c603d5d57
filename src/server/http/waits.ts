import { LimitError } from "../../base/errors.ts";
import type { HttpMetrics } from "./metrics.ts";

/** Bounds how many requests wait at the same time. */
export class Waits {
  readonly #max: number;
  readonly #metrics: HttpMetrics;
  #count = 0;

  constructor(max: number, metrics: HttpMetrics) {
    this.#max = max;
    this.#metrics = metrics;
  }

  async during<T>(wait: () => Promise<T>): Promise<T> {
    if (this.#count >= this.#max) {
      throw new LimitError("too many calls wait here; wait less, or ask another server", 1_000);
    }
    this.#change(1);
    try {
      return await wait();
    } finally {
      this.#change(-1);
    }
  }

  #change(by: number): void {
    this.#count += by;
    this.#metrics.waits.set(this.#count);
  }
}
