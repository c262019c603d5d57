/** A share of all time for something that costs time, and some of it at once after a rest. */
export class TimeBudget {
  readonly #share: number;
  readonly #restedMs: number;
  #leftMs: number;
  #atMs: number | undefined;

  constructor(share: number, restedMs: number) {
    this.#share = share;
    this.#restedMs = restedMs;
    this.#leftMs = restedMs;
  }

  /** How long until something may be done again; 0 when it may be done now. */
  waitMs(nowMs: number): number {
    this.#fill(nowMs);
    return this.#leftMs >= 0 ? 0 : Math.ceil(-this.#leftMs / this.#share);
  }

  /** It was done, and took so long: what costs more than is left is paid by a longer wait. */
  spend(ms: number, nowMs: number): void {
    this.#fill(nowMs);
    this.#leftMs -= ms;
  }

  #fill(nowMs: number): void {
    const gained = (nowMs - (this.#atMs ?? nowMs)) * this.#share;
    this.#leftMs = Math.min(this.#restedMs, this.#leftMs + gained);
    this.#atMs = nowMs;
  }
}
