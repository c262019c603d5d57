/**
 * When a hold of a key space is due next, as far as this worker knows. An answer that was asked for
 * before holds came or went knows nothing of them, and is not believed.
 */
export class NextHold {
  #atMs = -Infinity;
  #news = 0;

  get atMs(): number {
    return this.#atMs;
  }

  /** Before it is asked; goes with the answer. */
  get asked(): number {
    return this.#news;
  }

  /** Holds may have come or gone: it is to be asked. */
  changed(): void {
    this.#news += 1;
    this.#atMs = -Infinity;
  }

  answered(atMs: number, asked: number): void {
    if (asked === this.#news) this.#atMs = atMs;
  }
}
