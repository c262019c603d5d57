import { Secret } from "../../base/secret.ts";

const SHOWN = "[secret]";
const DEPTH_MAX = 6;
const MEMBERS_MAX = 200;
const TEXT_MAX = 16_384;
/** Shorter ones are words that lines have for other reasons. */
const KNOWN_LENGTH_MIN = 6;

/** Members whose value is nobody's business, whatever it is. `tokenId` is not one of them. */
const SECRET_NAMES = [
  /(^|[_-])(authorization|cookie|bearer)$/i,
  /(password|passwd|secrets?|token|credentials?|api[_-]?key|private[_-]?key)$/i,
];

const isSecret = (name: string): boolean => SECRET_NAMES.some((pattern) => pattern.test(name));

/** What gives itself away in the middle of a text. */
const PATTERNS: readonly [RegExp, string][] = [
  [/(\b[a-z][a-z0-9+.-]{0,20}:\/\/[^\s:/@]{0,200}:)\S{0,500}@/gi, `$1${SHOWN}@`],
  [/\b(password|passwd|pwd)=("[^"]*"|'[^']*'|[^\s&]+)/gi, `$1=${SHOWN}`],
  [/\b(bearer|basic)\s+[\w.~+/=-]{8,}/gi, `$1 ${SHOWN}`],
  [/\beyJ[\w-]{4,}\.[\w-]+\.[\w-]*/g, SHOWN],
  [/\btmk_[0-9a-f]{16}_[0-9a-f]+/g, SHOWN],
  [/\bwhsec_[\w+/=-]{8,}/g, SHOWN],
];

/**
 * Takes secrets out of what is logged: members with the name of one, texts that look like one, and
 * those that are known to be. Bounded in depth, members and length.
 */
export class Redactor {
  readonly #known: readonly string[];

  /** @param known such as the configured tokens and the password of the database */
  constructor(known: readonly string[] = []) {
    this.#known = known.filter((text) => text.length >= KNOWN_LENGTH_MIN);
  }

  text(text: string): string {
    let clean = text.length > TEXT_MAX ? `${text.slice(0, TEXT_MAX)}…` : text;
    for (const secret of this.#known) clean = clean.replaceAll(secret, SHOWN);
    for (const [pattern, shown] of PATTERNS) clean = clean.replace(pattern, shown);
    return clean;
  }

  fields(fields: object): Record<string, unknown> {
    return this.#members(fields, 0);
  }

  #value(value: unknown, depth: number): unknown {
    if (typeof value === "string") return this.text(value);
    if (typeof value === "bigint") return String(value);
    if (typeof value !== "object" || value === null) return value;
    if (value instanceof Secret) return SHOWN;
    if (value instanceof Date) return value;
    if (ArrayBuffer.isView(value)) return `[${value.byteLength} bytes]`;
    if (depth >= DEPTH_MAX) return "[deeper]";
    if (value instanceof Error) return this.#error(value, depth);
    if (Array.isArray(value)) {
      return value.slice(0, MEMBERS_MAX).map((one) => this.#value(one, depth + 1));
    }
    return this.#members(value, depth + 1);
  }

  #error({ name, message, stack, cause }: Error, depth: number): object {
    return this.#members({ type: name, message, stack, cause }, depth + 1);
  }

  #members(value: object, depth: number): Record<string, unknown> {
    const members = Object.entries(value).slice(0, MEMBERS_MAX);
    return Object.fromEntries(
      members.map(([name, one]) => [
        name,
        isSecret(name) && one !== undefined ? SHOWN : this.#value(one, depth),
      ]),
    );
  }
}
