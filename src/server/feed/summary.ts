import type { FeedRow } from "./feed-row.ts";
import { Histogram } from "./histogram.ts";
import type { RowTimes } from "./task-times.ts";

/** Changes that are told one by one. Of more, only how many there were. */
export const CHANGES_MAX = 100;
/** Pairs of queue and state; changes of further queues are counted without their name. */
const PAIRS_MAX = 1_000;

interface Count {
  readonly queue: string | null;
  readonly state: string;
  count: number;
}

/** What became of tasks since it was last told, in a size that does not grow with their number. */
export class Summary {
  #counts = new Map<string, Count>();
  #changes: string[] = [];
  #isComplete = true;
  #at: Date | undefined;
  #isReplay = false;
  #retries = 0;
  #wait = new Histogram();
  #run = new Histogram();

  get isEmpty(): boolean {
    return this.#counts.size === 0;
  }

  /** One row that its reader may see, but for the first so many changes. */
  add(row: FeedRow, skipped: number, times: RowTimes | undefined): void {
    const count = row.count - skipped;
    if (count <= 0) return;
    this.#at = row.at;
    this.#countOf(row.queue, row.state).count += count;
    if (row.isRetry) this.#retries += count;
    if (this.#changes.length + count > CHANGES_MAX) {
      this.#isComplete = false;
      this.#changes = [];
    }
    if (this.#isComplete) this.#changes.push(...row.dataAfter(skipped));
    for (const ms of times?.waitMs ?? []) this.#wait.add(ms);
    for (const ms of times?.runMs ?? []) this.#run.add(ms);
  }

  /** Some of it happened while its reader was away. */
  noteReplay(): void {
    this.#isReplay = true;
  }

  /** Its data as JSON. */
  text(): string {
    const members = {
      at: this.#at,
      counts: [...this.#counts.values()],
      retries: this.#retries,
      ...(this.#wait.isEmpty ? {} : { waitMs: this.#wait.counts }),
      ...(this.#run.isEmpty ? {} : { runMs: this.#run.counts }),
      ...(this.#isReplay ? { isReplay: true } : {}),
      isComplete: this.#isComplete,
    };
    return `${JSON.stringify(members).slice(0, -1)},"changes":[${this.#changes.join(",")}]}`;
  }

  /** It begins anew. */
  clear(): void {
    this.#counts = new Map();
    this.#changes = [];
    this.#isComplete = true;
    this.#isReplay = false;
    this.#retries = 0;
    this.#wait = new Histogram();
    this.#run = new Histogram();
  }

  #countOf(queue: string, state: string): Count {
    const key = `${state}\n${queue}`;
    const known = this.#counts.get(key);
    if (known !== undefined) return known;
    const isNamed = this.#counts.size < PAIRS_MAX;
    const place = isNamed ? key : state;
    const count = this.#counts.get(place) ?? { queue: isNamed ? queue : null, state, count: 0 };
    this.#counts.set(place, count);
    return count;
  }
}
