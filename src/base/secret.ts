import { inspect } from "node:util";

const SHOWN = "[secret]";

/**
 * A text that must not be seen: a token, a password. Logs, messages, JSON and the inspector show
 * "[secret]"; only `reveal` gives the text, so every use of it can be found by that word.
 */
export class Secret {
  readonly #text: string;

  constructor(text: string) {
    this.#text = text;
  }

  reveal(): string {
    return this.#text;
  }

  toString(): string {
    return SHOWN;
  }

  toJSON(): string {
    return SHOWN;
  }

  [inspect.custom](): string {
    return SHOWN;
  }
}
