import type { Clock } from "./clock.ts";

/**
 * A coalescing wake-up: any number of rings while its loop is busy cause one early turn. The loop
 * clears it before it looks for work, so a ring for work the look missed is never lost.
 */
export class Bell {
  #rung = false;
  #release: (() => void) | undefined;

  get isRung(): boolean {
    return this.#rung;
  }

  clear(): void {
    this.#rung = false;
  }

  ring(): void {
    this.#rung = true;
    this.#release?.();
  }

  /** Resolves when rung (also since the last `clear`), after `ms`, or when `signal` aborts. */
  waitAtMost(ms: number, clock: Clock, signal: AbortSignal): Promise<void> {
    if (this.#rung || signal.aborted || ms <= 0) return Promise.resolve();
    return new Promise((resolve) => {
      const done = (): void => {
        cancel();
        signal.removeEventListener("abort", done);
        this.#release = undefined;
        resolve();
      };
      const cancel = clock.after(ms, done);
      signal.addEventListener("abort", done, { once: true });
      this.#release = done;
    });
  }
}
