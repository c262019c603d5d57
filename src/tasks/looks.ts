import type { TurnResult } from "../base/loop.ts";

/** After so many turns everything was looked at, however much there is to do. */
const TURNS_MAX = 5;

interface Waiter {
  readonly tell: () => void;
  turns: number;
}

/** Those who wait until it was looked for work once. */
export class Looks {
  #waiting: Waiter[] = [];
  #isAwaited = false;

  /** Whether somebody waits for the turn that goes on: then it leaves nothing for later. */
  get isAwaited(): boolean {
    return this.#isAwaited;
  }

  /** Resolves when it was looked for everything, beginning after now. */
  next(): Promise<void> {
    return new Promise((tell) => this.#waiting.push({ tell, turns: 0 }));
  }

  /** A turn that throws was none. */
  async during(turn: () => Promise<TurnResult>): Promise<TurnResult> {
    const waiting = this.#waiting;
    this.#waiting = [];
    this.#isAwaited = waiting.length > 0;
    let result: TurnResult | undefined;
    try {
      result = await turn();
      return result;
    } finally {
      for (const one of waiting) {
        one.turns += result === undefined ? 0 : 1;
        const isOver = result !== undefined && (result !== "again" || one.turns >= TURNS_MAX);
        if (isOver) one.tell();
        else this.#waiting.push(one);
      }
    }
  }
}
