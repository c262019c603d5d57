import type { FeedRow } from "./feed-row.ts";

/** All rows from where somebody is up to there. */
export interface RowsUpTo {
  readonly rows: readonly FeedRow[];
  readonly to: bigint;
}

/** Of one page for somebody who is behind. */
export const PAGE_CHANGES = 2_000;

/**
 * What was told last, so that those who come back after a moment, often many at once, do not ask
 * the database.
 */
export class RecentRows {
  readonly #changesMax: number;
  readonly #charsMax: number;
  #rows: FeedRow[] = [];
  #changes = 0;
  #chars = 0;
  /** Everything behind it is here. */
  #from = 0n;

  constructor(changesMax: number, charsMax: number) {
    this.#changesMax = changesMax;
    this.#charsMax = charsMax;
  }

  clear(from: bigint): void {
    this.#rows = [];
    this.#changes = 0;
    this.#chars = 0;
    this.#from = from;
  }

  add(row: FeedRow): void {
    this.#rows.push(row);
    this.#changes += row.count;
    this.#chars += row.chars;
    if (this.#fits(1)) return;
    // Half at once, so that it is not moved with every row.
    let dropped = 0;
    while (!this.#fits(0.5) && dropped < this.#rows.length) {
      const oldest = this.#rows[dropped];
      if (oldest === undefined) break;
      this.#changes -= oldest.count;
      this.#chars -= oldest.chars;
      this.#from = oldest.position;
      dropped += 1;
    }
    this.#rows.splice(0, dropped);
  }

  /** A page of what is behind the cursor. Undefined: some of it is not here any more. */
  after(cursor: bigint, frontier: bigint): RowsUpTo | undefined {
    if (cursor < this.#from) return undefined;
    const rows: FeedRow[] = [];
    let changes = 0;
    for (let place = this.#placeBehind(cursor); place < this.#rows.length; place += 1) {
      const row = this.#rows[place];
      if (row === undefined || row.position > frontier) break;
      rows.push(row);
      changes += row.count;
      if (changes >= PAGE_CHANGES) return { rows, to: row.position };
    }
    return { rows, to: frontier };
  }

  #fits(share: number): boolean {
    return this.#changes <= this.#changesMax * share && this.#chars <= this.#charsMax * share;
  }

  #placeBehind(cursor: bigint): number {
    let low = 0;
    let high = this.#rows.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((this.#rows[middle]?.position ?? 0n) <= cursor) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
