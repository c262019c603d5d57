/** What waits for one reader of a stream: so many characters at most, and then it has lagged. */
export class Outbox {
  readonly #charsMax: number;
  #texts: string[] = [];
  #chars = 0;
  #lost = 0;

  constructor(charsMax: number) {
    this.#charsMax = charsMax;
  }

  get chars(): number {
    return this.#chars;
  }

  get isEmpty(): boolean {
    return this.#texts.length === 0;
  }

  /** Messages that were not kept since the last time it was asked. */
  get hasLost(): boolean {
    return this.#lost > 0;
  }

  /** False: there was no room, or something before it was lost already. */
  add(text: string, messages: number): boolean {
    if (this.#lost > 0 || (this.#chars > 0 && this.#chars + text.length > this.#charsMax)) {
      this.#lost += messages;
      return false;
    }
    this.put(text);
    return true;
  }

  /** Whether or not there is room: for what was asked for, a page at a time. */
  put(text: string): void {
    this.#texts.push(text);
    this.#chars += text.length;
  }

  /** Whole messages, about so many characters, or fewer when there are no more. */
  take(chars: number): string {
    let count = 0;
    let taken = 0;
    for (const { length } of this.#texts) {
      if (count > 0 && taken + length > chars) break;
      count += 1;
      taken += length;
    }
    this.#chars -= taken;
    return this.#texts.splice(0, count).join("");
  }

  /** How many messages were lost; from now on they are kept again. */
  forgive(): number {
    const lost = this.#lost;
    this.#lost = 0;
    return lost;
  }

  clear(): void {
    this.#texts = [];
    this.#chars = 0;
    this.#lost = 0;
  }
}
