import type { Queryable } from "../db/database.ts";
import { drawFence, readCeiling } from "../db/sql/epoch.ts";

/**
 * How far the numbers of tasks are settled: every number up to it belongs to a task that is visible
 * now, or to none for ever. Proven by epochs, as for the event log (docs/explanation/gaps.md).
 */
export class Settling {
  readonly #sequence: string;
  #settled = 0;
  #epoch: { readonly ceiling: number; readonly fence: bigint } | undefined;

  constructor(sequence: string) {
    this.#sequence = sequence;
  }

  get settled(): number {
    return this.#settled;
  }

  get isOpen(): boolean {
    return this.#epoch !== undefined;
  }

  /** The order is the proof: the ceiling first, then a fence of our own. */
  async open(db: Queryable): Promise<void> {
    if (this.#epoch !== undefined) return;
    const ceiling = Number(await readCeiling(db, this.#sequence));
    if (ceiling <= this.#settled) return;
    this.#epoch = { ceiling, fence: await drawFence(db) };
  }

  /** A snapshot was taken in which nothing older ran. */
  observe(oldestRunning: bigint): void {
    if (this.#epoch === undefined || oldestRunning <= this.#epoch.fence) return;
    this.#settled = this.#epoch.ceiling;
    this.#epoch = undefined;
  }

  /** The server may have crashed: nothing is known. */
  forget(): void {
    this.#settled = 0;
    this.#epoch = undefined;
  }
}
