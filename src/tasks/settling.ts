import type { Queryable } from "../db/database.ts";
import { drawFence, readCeiling } from "../db/sql/epoch.ts";

/**
 * How far the numbers of tasks are settled: every number up to it belongs to a task that is visible
 * now, or to none for ever. Proven by epochs, as for the event log (docs/explanation/gaps.md).
 */
export class Settling {
  readonly #sequence: string;
  #settled = 0;
  #newest = 0;
  #epoch: { readonly ceiling: number; readonly fence: bigint } | undefined;
  /** Grows when everything is forgotten. */
  #version = 0;

  constructor(sequence: string) {
    this.#sequence = sequence;
  }

  get settled(): number {
    return this.#settled;
  }

  /** A number that was seen: how much there is to settle. */
  sawNumber(number: number): void {
    if (number > this.#newest) this.#newest = number;
  }

  get unsettled(): number {
    return this.#newest - this.#settled;
  }

  get isOpen(): boolean {
    return this.#epoch !== undefined;
  }

  /**
   * The order is the proof: the ceiling first, then a fence of our own.
   *
   * @param session which runs statements in the order they are written
   */
  async open(session: Queryable): Promise<void> {
    if (this.#epoch !== undefined) return;
    const version = this.#version;
    const [ceiling, fence] = await Promise.all([
      readCeiling(session, this.#sequence),
      drawFence(session),
    ]);
    if (this.#version === version) this.#epoch = { ceiling: Number(ceiling), fence };
  }

  /**
   * A snapshot was taken in which nothing older ran. How far the numbers are settled in it: no
   * further than it proves itself, or than was known `before` it was asked for.
   */
  observe(oldestRunning: bigint, before: number): number {
    if (this.#epoch === undefined || oldestRunning <= this.#epoch.fence) return before;
    this.#settled = this.#epoch.ceiling;
    this.#epoch = undefined;
    return this.#settled;
  }

  /** The server may have crashed: nothing is known. */
  forget(): void {
    this.#settled = 0;
    this.#epoch = undefined;
    this.#version += 1;
  }
}
