import { InvalidInputError } from "../../base/errors.ts";
import { JsonText } from "../../base/json-text.ts";

export interface JsonRules {
  /** Objects and lists inside each other. */
  readonly depthMax: number;
  /** Members of all objects together. */
  readonly keysMax: number;
  /**
   * Members that stay as they were written: of the outermost object as "payload", of objects in a
   * list of it as "tasks[].payload".
   */
  readonly verbatim: readonly string[];
}

type Place = string | number;

interface Span {
  readonly place: readonly Place[];
  readonly start: number;
  end: number;
}

/**
 * Reads JSON that a stranger sent. Depth, members and names are looked at before anything is made
 * of it.
 */
export function readJson(text: string, rules: JsonRules): unknown {
  const spans = new JsonScan(text, rules).run();
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new InvalidInputError("the body is not JSON");
  }
  for (const { place, start, end } of spans) {
    const [name, index, member] = place;
    const owner: unknown = index === undefined ? value : at(at(value, name ?? ""), index);
    const key = index === undefined ? name : member;
    if (owner === null || typeof owner !== "object" || key === undefined) continue;
    Reflect.set(owner, key, new JsonText(text.slice(start, end)));
  }
  return value;
}

const at = (value: unknown, place: Place): unknown =>
  value !== null && typeof value === "object" ? Reflect.get(value, place) : undefined;

interface Frame {
  readonly isObject: boolean;
  /** Of an object: its member that is being read; of a list: how many went before. */
  key: Place;
  isAtKey: boolean;
  /** The span that ends with it. */
  readonly span: Span | undefined;
}

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const isBlank = (code: number): boolean => code <= 0x20;

/**
 * Walks over the text once. It need not be JSON: what is found in a text that is not goes nowhere,
 * because that is refused afterwards.
 */
class JsonScan {
  readonly #text: string;
  readonly #rules: JsonRules;
  readonly #frames: Frame[] = [];
  readonly #spans: Span[] = [];
  #keys = 0;

  constructor(text: string, rules: JsonRules) {
    this.#text = text;
    this.#rules = rules;
  }

  run(): readonly Span[] {
    for (let at = 0; at < this.#text.length; at = this.#step(at)) {
      // Each step returns where the next begins.
    }
    return this.#spans;
  }

  #step(at: number): number {
    const code = this.#text.charCodeAt(at);
    if (isBlank(code)) return at + 1;
    const frame = this.#frames.at(-1);
    switch (this.#text[at]) {
      case "{":
      case "[":
        this.#open(at);
        return at + 1;
      case "}":
      case "]":
        this.#close(at + 1);
        return at + 1;
      case ",":
        if (frame?.isObject === true) frame.isAtKey = true;
        else if (frame !== undefined) frame.key = Number(frame.key) + 1;
        return at + 1;
      case ":":
        return at + 1;
      default:
        return frame?.isAtKey === true ? this.#key(at, frame) : this.#scalar(at);
    }
  }

  #open(at: number): void {
    if (this.#frames.length >= this.#rules.depthMax) {
      throw new InvalidInputError(`the body is nested deeper than ${this.#rules.depthMax} levels`);
    }
    const span = this.#spanAt(at);
    const isObject = this.#text[at] === "{";
    this.#frames.push({ isObject, key: isObject ? "" : 0, isAtKey: isObject, span });
  }

  #close(end: number): void {
    const span = this.#frames.pop()?.span;
    if (span !== undefined) span.end = end;
  }

  #key(at: number, frame: Frame): number {
    const end = this.#endOfString(at);
    const name = readKey(this.#text.slice(at, end));
    if (name === "__proto__") {
      throw new InvalidInputError('the body has a member "__proto__", which is refused');
    }
    this.#keys += 1;
    if (this.#keys > this.#rules.keysMax) {
      throw new InvalidInputError(`the body has more than ${this.#rules.keysMax} members`);
    }
    frame.key = name;
    frame.isAtKey = false;
    return end;
  }

  #scalar(at: number): number {
    const end = this.#text.charCodeAt(at) === QUOTE ? this.#endOfString(at) : this.#endOfWord(at);
    const span = this.#spanAt(at);
    if (span !== undefined) span.end = end;
    return end;
  }

  #endOfWord(at: number): number {
    let end = at + 1;
    while (end < this.#text.length) {
      const code = this.#text.charCodeAt(end);
      if (isBlank(code) || ',:{}[]"'.includes(this.#text[end] ?? "")) break;
      end += 1;
    }
    return end;
  }

  /** Behind the closing quote. */
  #endOfString(at: number): number {
    for (let end = this.#text.indexOf('"', at + 1); end >= 0; ) {
      let slashes = 0;
      while (this.#text.charCodeAt(end - 1 - slashes) === BACKSLASH) slashes += 1;
      if (slashes % 2 === 0) return end + 1;
      end = this.#text.indexOf('"', end + 1);
    }
    return this.#text.length;
  }

  /** A value that begins here and stays as it is. */
  #spanAt(start: number): Span | undefined {
    const place = this.#frames.map(({ key }) => key);
    const [name, , member] = place;
    const pattern =
      place.length === 1 && this.#frames[0]?.isObject === true
        ? String(name)
        : place.length === 3 && this.#frames[1]?.isObject === false
          ? `${name}[].${member}`
          : undefined;
    if (pattern === undefined || !this.#rules.verbatim.includes(pattern)) return undefined;
    const span = { place, start, end: start };
    this.#spans.push(span);
    return span;
  }
}

function readKey(quoted: string): string {
  if (!quoted.includes("\\")) return quoted.slice(1, -1);
  try {
    return String(JSON.parse(quoted));
  } catch {
    return quoted;
  }
}
