/** Something that is to be done when there was a change, but at most once in a while. */
export class Refresh {
  readonly #act: () => void;
  readonly #everyMs: number;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #lastMs = Number.NEGATIVE_INFINITY;

  constructor(act: () => void, everyMs: number) {
    this.#act = act;
    this.#everyMs = everyMs;
  }

  /** At once after a rest, else when the time is over: the last change is never forgotten. */
  ask(): void {
    if (this.#timer !== undefined) return;
    const leftMs = this.#lastMs + this.#everyMs - Date.now();
    if (leftMs <= 0) this.#run();
    else this.#timer = setTimeout(() => this.#run(), leftMs);
  }

  cancel(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  #run(): void {
    this.#timer = undefined;
    this.#lastMs = Date.now();
    this.#act();
  }
}
