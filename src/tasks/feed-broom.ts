import type { Queryable } from "../db/database.ts";
import { isOneLeft } from "./feed-writers.ts";
import {
  type Forgotten,
  forgetChanges,
  readFeedWriters,
  readNewestChange,
  type Swept,
} from "./sql/feed.ts";

/** No change appears at or below the ceiling when none of these writers is left. */
interface Proof {
  readonly ceiling: bigint;
  readonly writers: ReadonlySet<string>;
}

const CHANGES_PER_STATEMENT = 5_000;
const STATEMENTS_MAX = 20;

/**
 * Removes old rows of the feed. It remembers up to where nothing is left, and begins there: what
 * was removed while an old snapshot is open stays in the index until that ends.
 *
 * A transaction that is open for longer than rows are kept may still add one below. So it passes
 * only what was settled before it looked, by the proof of ADR 13. Another era begins when the
 * database has crashed, and with it perhaps the positions: then it begins at the lowest again, as
 * does whoever leads next.
 */
export class FeedBroom {
  readonly #db: Queryable;
  #swept: Swept | undefined;
  #settled = 0n;
  #proof: Proof | undefined;
  /** Whether something may have been removed that is not passed yet. */
  #isBehind = false;

  constructor(db: Queryable) {
    this.#db = db;
  }

  /** Piece by piece: each is a short transaction, and all of them keep up with what is written. */
  async sweep(seconds: number): Promise<void> {
    const isProven = this.#isBehind && (await this.#settle());
    let isRemoved = false;
    let from = this.#swept;
    for (let statements = 0; statements < STATEMENTS_MAX; statements += 1) {
      const gone = await forgetChanges(this.#db, seconds, CHANGES_PER_STATEMENT, from);
      if (gone.count > 0) isRemoved = true;
      const isKnown = this.#note(gone);
      const { era, last, count } = gone;
      const isDoubtful = isRemoved || !isKnown || (this.#isBehind && !isProven);
      this.#isBehind = era !== undefined && isDoubtful; // Where there is none, there are no rows.
      if (era === undefined || last === undefined || count < CHANGES_PER_STATEMENT) return;
      from = { era, after: last }; // Only for now: somebody may still write below it.
    }
  }

  /** In this order: who draws a position later is not waited for, and it is above the ceiling. */
  async #settle(): Promise<boolean> {
    this.#proof ??= {
      ceiling: await readNewestChange(this.#db),
      writers: await readFeedWriters(this.#db),
    };
    const { ceiling, writers } = this.#proof;
    if (writers.size > 0 && isOneLeft(writers, await readFeedWriters(this.#db))) return false;
    this.#settled = ceiling;
    this.#proof = undefined;
    return true;
  }

  /** Passes what was settled before, and is not there. False: it is another era. */
  #note({ count, era, last, next }: Forgotten): boolean {
    if (era === undefined || era !== this.#swept?.era) {
      // What was proven is about other positions.
      this.#settled = 0n;
      this.#proof = undefined;
      this.#swept = era === undefined ? undefined : { era, after: 0n };
      return false;
    }
    const isCut = count >= CHANGES_PER_STATEMENT;
    const empty = isCut ? (last ?? 0n) : (next ?? this.#settled + 1n) - 1n;
    const reached = empty < this.#settled ? empty : this.#settled;
    if (reached > this.#swept.after) this.#swept = { era, after: reached };
    return true;
  }
}
