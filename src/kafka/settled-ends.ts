import type { Clock } from "../base/clock.ts";
import { closedBy, type Epoch, safeFrontier, windowTarget } from "../consumers/frontier.ts";
import type { Queryable } from "../db/database.ts";
import { drawFence, readCeiling } from "../db/sql/epoch.ts";
import { type EndRow, readEnds, readEndWriters, readOldestRunning } from "./sql/task-ends.ts";

export interface SettledEndsOptions {
  readonly sequence: string;
  readonly rowsMax: number;
  readonly bytesMax: number;
  readonly clock: Clock;
}

/**
 * Reads ends of tasks in the order of their positions, as far as they are settled. Positions come
 * from a sequence, so a lower one may become visible after a higher one. What continues the last
 * one without a hole is settled. Behind a hole an epoch is opened, as for the log: the last
 * position that was drawn, then a fence, then who may be writing. It closes when all
 * transactions older than the fence have ended, or all those writers; rows that are read after that
 * show everything that ever will be there. Time proves nothing. docs/explanation/gaps.md has the
 * proof.
 */
export class SettledEnds {
  readonly #options: SettledEndsOptions;
  #epoch: Epoch | undefined;
  #settledTo = 0n;
  #heldSinceMs: number | undefined;

  constructor(options: SettledEndsOptions) {
    this.#options = options;
  }

  /** For how long something that is there could not be told. */
  get heldMs(): number {
    return this.#heldSinceMs === undefined ? 0 : this.#options.clock.now() - this.#heldSinceMs;
  }

  /** Of the epoch that is waited for. */
  get fence(): bigint | undefined {
    return this.#epoch?.fence;
  }

  /** The server may have crashed: nothing is known. */
  forget(): void {
    this.#epoch = undefined;
    this.#settledTo = 0n;
    this.#heldSinceMs = undefined;
  }

  /** The next piece behind `after`, from which nothing can be missing. */
  async read(db: Queryable, after: bigint): Promise<readonly EndRow[]> {
    await this.#closeEpoch(db);
    const { rows, isCut } = await readEnds(db, after, this.#options);
    const positions = rows.map(({ position }) => BigInt(position));
    const frontier = safeFrontier(after, this.#settledTo, positions);
    const target = windowTarget(positions, isCut, frontier);
    const settled = rows.filter((_, place) => (positions[place] ?? 0n) <= target);
    const isHeld = settled.length < rows.length;
    // Most holes are gone by the time that what lies before them was published.
    if (isHeld && settled.length === 0) this.#epoch ??= await this.#openEpoch(db);
    if (!isHeld) this.#epoch = undefined; // It was about a hole that is no more.
    this.#noteHeld(isHeld && settled.length === 0);
    return settled;
  }

  /** The order is the proof: the ceiling, then the fence, then the writers. */
  async #openEpoch(db: Queryable): Promise<Epoch> {
    const ceiling = await readCeiling(db, this.#options.sequence);
    const fence = await drawFence(db);
    return { ceiling, fence, lockers: await readEndWriters(db) };
  }

  async #closeEpoch(db: Queryable): Promise<void> {
    if (this.#epoch === undefined) return;
    const oldestRunning = await readOldestRunning(db);
    const lockers = await readEndWriters(db);
    if (closedBy(this.#epoch, { oldestRunning, lockers }) === undefined) return;
    this.#settledTo = this.#epoch.ceiling;
    this.#epoch = undefined;
  }

  #noteHeld(isHeld: boolean): void {
    this.#heldSinceMs = isHeld ? (this.#heldSinceMs ?? this.#options.clock.now()) : undefined;
  }
}
