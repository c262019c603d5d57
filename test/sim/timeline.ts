interface Happening {
  readonly at: number;
  readonly number: number;
  readonly run: () => void;
  isOff: boolean;
}

/** Rounds of the event loop in which what an event set going comes to rest. */
const ROUNDS = 3;

/**
 * Virtual time. What is to happen is kept in the order of its time, then in the order in which it
 * was asked for, and happens one after the other: the same seed, the same order.
 */
export class Timeline {
  now = 0;
  /** How many things have happened. */
  count = 0;
  #number = 0;
  #isStirred = false;
  readonly #heap: Happening[] = [];

  /** Calls `run` after so many milliseconds. The returned function cancels it. */
  after(ms: number, run: () => void): () => void {
    this.#number += 1;
    const one = { at: this.now + Math.max(0, ms), number: this.#number, run, isOff: false };
    this.#push(one);
    return () => {
      one.isOff = true;
    };
  }

  /** Something ran in a process: it may have more to do before time goes on. */
  stir(): void {
    this.#isStirred = true;
  }

  /** Lets everything happen that is due within so many milliseconds. */
  async pass(ms: number): Promise<void> {
    const until = this.now + ms;
    await this.#rest();
    for (let next = this.#heap[0]; next !== undefined && next.at <= until; next = this.#heap[0]) {
      this.#pop();
      if (next.isOff) continue;
      this.now = next.at;
      this.count += 1;
      next.run();
      if (this.#isStirred) await this.#rest();
    }
    this.now = until;
  }

  /** Promises go on in one order only, and so do the immediates that some of them wait for. */
  async #rest(): Promise<void> {
    this.#isStirred = false;
    for (let round = 0; round < ROUNDS; round += 1) {
      await new Promise<void>((resolve) => setImmediate(resolve));
    }
  }

  #push(one: Happening): void {
    const heap = this.#heap;
    let place = heap.push(one) - 1;
    while (place > 0) {
      const above = (place - 1) >> 1;
      const parent = heap[above]!;
      if (isBefore(parent, one)) break;
      heap[place] = parent;
      place = above;
    }
    heap[place] = one;
  }

  #pop(): void {
    const heap = this.#heap;
    const last = heap.pop();
    if (last === undefined || heap.length === 0) return;
    let place = 0;
    for (;;) {
      let below = 2 * place + 1;
      if (below >= heap.length) break;
      if (below + 1 < heap.length && isBefore(heap[below + 1]!, heap[below]!)) below += 1;
      if (isBefore(last, heap[below]!)) break;
      heap[place] = heap[below]!;
      place = below;
    }
    heap[place] = last;
  }
}

const isBefore = (a: Happening, b: Happening): boolean =>
  a.at < b.at || (a.at === b.at && a.number < b.number);
