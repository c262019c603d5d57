import type { LiveEvent } from "./events.ts";
import { FeedStream } from "./feed-stream.ts";
import { fold, type LiveState, NOTHING_YET } from "./live-state.ts";

/** Reads the feed for several tabs: each is told what is known when it comes, and what happens. */
export class SharedReader {
  readonly #listeners = new Set<(event: LiveEvent) => void>();
  readonly #stream: FeedStream;
  #state: LiveState = NOTHING_YET;

  constructor(token: string) {
    this.#stream = new FeedStream(token, (event) => {
      this.#state = fold(this.#state, event);
      for (const listener of this.#listeners) listener(event);
    });
  }

  get state(): LiveState {
    return this.#state;
  }

  get isIdle(): boolean {
    return this.#listeners.size === 0;
  }

  add(listener: (event: LiveEvent) => void): void {
    this.#listeners.add(listener);
  }

  remove(listener: (event: LiveEvent) => void): void {
    this.#listeners.delete(listener);
  }

  hurry(): void {
    this.#stream.hurry();
  }

  close(): void {
    this.#stream.close();
  }
}
