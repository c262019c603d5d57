import type { Clock } from "../../src/base/clock.ts";

interface Timer {
  readonly at: number;
  readonly wake: () => void;
}

/** Time that passes only when told to. */
export class ManualClock implements Clock {
  #now = 0;
  readonly #timers = new Set<Timer>();

  now(): number {
    return this.#now;
  }

  after(ms: number, wake: () => void): () => void {
    const timer = { at: this.#now + ms, wake };
    this.#timers.add(timer);
    return () => void this.#timers.delete(timer);
  }

  /** How many waits are under way: a test that ends with some has leaked them. */
  get pending(): number {
    return this.#timers.size;
  }

  /** How long until the next wait ends. */
  get nextMs(): number | undefined {
    const next = this.#next();
    return next === undefined ? undefined : next.at - this.#now;
  }

  advance(ms: number): void {
    const until = this.#now + ms;
    for (let due = this.#next(); due !== undefined && due.at <= until; due = this.#next()) {
      this.#timers.delete(due);
      this.#now = due.at;
      due.wake();
    }
    this.#now = until;
  }

  #next(): Timer | undefined {
    return [...this.#timers].sort((a, b) => a.at - b.at)[0];
  }
}

/** Lets every promise that can go on do so. */
export async function settle(): Promise<void> {
  for (let round = 0; round < 5; round += 1) {
    await new Promise<void>((resolve) => setImmediate(resolve));
  }
}
