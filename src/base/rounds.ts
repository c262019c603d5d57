/**
 * Allows so many steps in one round of the event loop. Work that never waits would otherwise keep
 * its process from hearing of anything else.
 */
export class Rounds {
  readonly #max: number;
  readonly #goOn: () => void;
  #left: number;
  #isOver = false;

  /** @param goOn called in the next round after a step was refused */
  constructor(max: number, goOn: () => void) {
    this.#max = max;
    this.#left = max;
    this.#goOn = goOn;
  }

  /** Whether one more step may be made in this round. */
  step(): boolean {
    if (this.#left > 0) {
      this.#left -= 1;
      return true;
    }
    if (!this.#isOver) {
      this.#isOver = true;
      setImmediate(() => {
        this.#isOver = false;
        this.#left = this.#max;
        this.#goOn();
      });
    }
    return false;
  }
}
