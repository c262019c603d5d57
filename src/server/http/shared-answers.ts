import { BoundedMap } from "../../base/bounded-map.ts";
import type { Clock } from "../../base/clock.ts";

interface Shared<T> {
  readonly atMs: number;
  readonly answer: Promise<T>;
}

const KEPT_MAX = 1_000;

/** What was asked a moment ago is not asked again: many tabs cost as much as one. */
export class SharedAnswers<T> {
  readonly #clock: Clock;
  readonly #forMs: number;
  readonly #answers = new BoundedMap<string, Shared<T>>(KEPT_MAX);

  constructor(clock: Clock, forMs: number) {
    this.#clock = clock;
    this.#forMs = forMs;
  }

  async get(key: string, read: () => Promise<T>): Promise<T> {
    const known = this.#answers.get(key);
    if (known !== undefined && this.#clock.now() - known.atMs < this.#forMs) {
      return await known.answer;
    }
    const shared = { atMs: this.#clock.now(), answer: read() };
    this.#answers.set(key, shared);
    // What failed is nothing to be told to others.
    shared.answer.catch(() => this.#answers.delete(key));
    return await shared.answer;
  }
}
