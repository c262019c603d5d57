import { type Clock, withinMs } from "../base/clock.ts";
import { type Stage, Supervisor } from "../base/supervisor.ts";

/**
 * Services that may hang in a broker that has fallen silent: running → stopping → ended, or left
 * behind. A stop waits for them in their order, but only for so long. What is left behind ends by
 * itself when the broker answers, or its client has given up; nobody waits for it.
 */
export class BoundedRun {
  /** Settles when they have ended, or are left behind; rejects when one could not go on. */
  readonly finished: Promise<void>;
  readonly #supervisor: Supervisor;
  #leave: () => void = () => {};

  constructor(stages: readonly Stage[]) {
    this.#supervisor = new Supervisor(stages);
    const left = new Promise<void>((resolve) => {
      this.#leave = resolve;
    });
    this.finished = Promise.race([this.#supervisor.finished, left]);
    this.finished.catch(() => {}); // Observed by whoever awaits it.
  }

  /** Whether all of them have ended in time. */
  async stop(ms: number, clock: Clock): Promise<boolean> {
    const ended = this.#supervisor.stop().catch(() => {}); // `finished` says why.
    const isOver = await withinMs(ended, ms, clock);
    if (!isOver) this.#leave();
    return isOver;
  }
}
