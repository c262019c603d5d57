/** Upper bounds of the classes in milliseconds; what is above the last has a class of its own. */
export const BOUNDS_MS = [
  1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000, 300_000,
] as const;

/** How long things took, in classes: two of them can be added, which quantiles cannot. */
export class Histogram {
  readonly #counts: number[] = BOUNDS_MS.map(() => 0).concat(0);
  #isEmpty = true;

  get isEmpty(): boolean {
    return this.#isEmpty;
  }

  /** One number for each bound, and one for what is above. */
  get counts(): readonly number[] {
    return this.#counts;
  }

  add(ms: number): void {
    const found = BOUNDS_MS.findIndex((bound) => ms <= bound);
    const index = found < 0 ? BOUNDS_MS.length : found;
    this.#counts[index] = (this.#counts[index] ?? 0) + 1;
    this.#isEmpty = false;
  }
}
