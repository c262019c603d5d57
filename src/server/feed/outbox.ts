const BEHIND_MESSAGE = "\n\n";

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

  /** Was not even offered, because of something before it that had no room. */
  lose(messages: number): void {
    this.#lost += messages;
  }

  /** Whether or not there is room: for what was asked for, a page at a time. */
  put(text: string): void {
    this.#texts.push(text);
    this.#chars += text.length;
  }

  /** Whole messages, at most so many characters unless one has more. */
  take(chars: number): string {
    this.#divideFirst(chars);
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

  /** A text may be all messages of a row: cut behind one of them. */
  #divideFirst(chars: number): void {
    const [first = ""] = this.#texts;
    if (first.length <= chars) return;
    const before = first.lastIndexOf(BEHIND_MESSAGE, chars - BEHIND_MESSAGE.length);
    const end = before > 0 ? before : first.indexOf(BEHIND_MESSAGE);
    const cut = end + BEHIND_MESSAGE.length;
    if (end > 0 && cut < first.length)
      this.#texts.splice(0, 1, first.slice(0, cut), first.slice(cut));
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
