import type { Clock } from "./clock.ts";

/** Waits that end with their owner: what is under way when it closes never comes, nor any later. */
export class Timers implements Pick<Clock, "after"> {
  readonly #clock: Clock;
  readonly #cancels = new Set<() => void>();
  #isClosed = false;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Calls `wake` once after `ms`. The returned function cancels it and may be called twice. */
  after(ms: number, wake: () => void): () => void {
    if (this.#isClosed) return () => {};
    const cancelTimer = this.#clock.after(ms, () => {
      this.#cancels.delete(cancel);
      wake();
    });
    const cancel = (): void => {
      this.#cancels.delete(cancel);
      cancelTimer();
    };
    this.#cancels.add(cancel);
    return cancel;
  }

  close(): void {
    this.#isClosed = true;
    for (const cancel of this.#cancels) cancel();
  }
}
