import { Fifo } from "./fifo.ts";

/** One that takes turns with others. */
export interface TurnTaker {
  /** Its turns are so many times as long. */
  readonly weight: number;
  /** What is left of its turn; less than nothing when it went on alone. */
  credit: number;
  /** Whether it has a turn or waits for one. */
  isInLine: boolean;
}

/**
 * Turns in the order of coming: whoever comes waits for one turn at most of each that is there,
 * however many come after it. Nothing is kept of those who left, neither credit nor debt. One who
 * is alone goes on without an end, and whoever comes after the length of a turn is next at once.
 */
export class Turns<T extends TurnTaker> {
  readonly #waiting = new Fifo<T>();
  readonly #ended: { value: number };
  #current: T | undefined;

  /** @param ended counts turns that were over while there was more to do, for another's */
  constructor(ended: { value: number } = { value: 0 }) {
    this.#ended = ended;
  }

  get isAlone(): boolean {
    return this.#waiting.size === 0;
  }

  /** It has something to do. */
  join(taker: T): void {
    if (taker.isInLine) return;
    taker.isInLine = true;
    taker.credit = 0;
    this.#waiting.push(taker);
  }

  /**
   * Whose turn it is. What it does is taken from its credit by the caller.
   *
   * @param length of a turn that begins now, for a weight of 1
   * @param isReady whether it has something to do; who has not leaves the line
   */
  next(length: number, isReady: (taker: T) => boolean): T | undefined {
    const current = this.#current;
    const isOn = current !== undefined && isReady(current);
    if (isOn && (current.credit >= 1 || this.isAlone)) return current;
    if (current !== undefined) current.isInLine = isOn;
    if (isOn) this.#waiting.push(current);
    this.#current = this.#begin(length, isReady);
    if (isOn && this.#current !== current) this.#ended.value += 1;
    return this.#current;
  }

  #begin(length: number, isReady: (taker: T) => boolean): T | undefined {
    for (;;) {
      const taker = this.#waiting.shift();
      if (taker === undefined) return undefined;
      taker.isInLine = isReady(taker);
      if (!taker.isInLine) continue;
      taker.credit = Math.max(taker.credit, 0) + length * taker.weight;
      if (taker.credit >= 1 || this.isAlone) return taker;
      this.#waiting.push(taker); // So light that it needs more than one round for one.
    }
  }
}
