/** How soon what a person does after something else is seen. */
const QUICK_MS = 250;

/**
 * Something that is to be done when there was a change: at once after a rest, soon for a second
 * change, and the less often the longer changes go on, down to once in `everyMs`. One that takes
 * longer than that is waited for, and then done once more.
 */
export class Refresh {
  readonly #act: () => Promise<unknown> | undefined;
  readonly #everyMs: number;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #lastMs = Number.NEGATIVE_INFINITY;
  #gapMs = 0;
  #isUnderWay = false;
  #isOwed = false;

  constructor(act: () => Promise<unknown> | undefined, everyMs: number) {
    this.#act = act;
    this.#everyMs = everyMs;
  }

  /** The last change is never forgotten. */
  ask(): void {
    if (this.#isUnderWay) this.#isOwed = true;
    if (this.#isUnderWay || this.#timer !== undefined) return;
    const restedMs = Date.now() - this.#lastMs;
    if (restedMs >= this.#everyMs) this.#gapMs = 0;
    else this.#gapMs = Math.min(this.#everyMs, Math.max(QUICK_MS, this.#gapMs * 2));
    const leftMs = this.#gapMs - restedMs;
    if (leftMs <= 0) this.#run();
    else this.#timer = setTimeout(() => this.#run(), leftMs);
  }

  cancel(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#isOwed = false;
  }

  #run(): void {
    this.#timer = undefined;
    this.#lastMs = Date.now();
    const done = this.#act();
    if (done === undefined) return;
    this.#isUnderWay = true;
    void done.catch(() => {}).then(() => this.#end());
  }

  #end(): void {
    this.#isUnderWay = false;
    this.#lastMs = Date.now();
    if (!this.#isOwed) return;
    this.#isOwed = false;
    this.ask();
  }
}
