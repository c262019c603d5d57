import type { Clock } from "../base/clock.ts";

/**
 * Events that somebody told of and nobody has read yet. It is over when the log was read after it,
 * when it cannot be read, or after `ms`: who waits for it holds locks meanwhile.
 */
export class Announcement {
  readonly over: Promise<void>;
  #end: () => void = () => {};

  constructor(ms: number, clock: Clock) {
    this.over = new Promise((resolve) => {
      const cancel = clock.after(ms, resolve);
      this.#end = () => {
        cancel();
        resolve();
      };
    });
  }

  /** May be called twice. */
  end(): void {
    this.#end();
  }
}
