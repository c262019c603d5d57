import { inspect } from "node:util";
import { ConfigError } from "./errors.ts";

/** Refuses keys that no option has: a typo must not silently become a default. */
export function refuseUnknown(what: string, given: object, known: readonly string[]): void {
  for (const key of Object.keys(given)) {
    if (known.includes(key)) continue;
    const near = nearest(key, known);
    const hint = near === undefined ? `known are ${known.join(", ")}` : `did you mean "${near}"?`;
    throw new ConfigError(`unknown ${what} option "${key}"; ${hint}`);
  }
}

export interface NumberRule {
  readonly min?: number;
  readonly max?: number;
  readonly integer?: boolean;
}

/** Checks one numeric option and names it, what it was and what it may be. */
export function requireNumber(name: string, value: unknown, rule: NumberRule): number {
  const { min = -Infinity, max = Infinity, integer = false } = rule;
  const fits =
    typeof value === "number" &&
    Number.isFinite(value) &&
    value >= min &&
    value <= max &&
    (!integer || Number.isInteger(value));
  if (fits) return value;
  const kind = integer ? "a whole number" : "a number";
  const range = [
    min === -Infinity ? "" : ` of at least ${min}`,
    max === Infinity ? "" : `${min === -Infinity ? "" : " and"} at most ${max}`,
  ].join("");
  throw new ConfigError(`${name} must be ${kind}${range}, not ${describe(value)}`);
}

export function requireOneOf<T extends string>(
  name: string,
  value: unknown,
  allowed: readonly T[],
): T {
  const found = allowed.find((one) => one === value);
  if (found !== undefined) return found;
  const list = allowed.map((one) => `"${one}"`).join(" or ");
  throw new ConfigError(`${name} must be ${list}, not ${describe(value)}`);
}

/** An explicit `undefined` means "not given", so that it never replaces a default. */
export function withoutUndefined<T extends object>(given: T): Given<T> {
  return Object.fromEntries(
    Object.entries(given).filter(([, value]) => value !== undefined),
  ) as Given<T>;
}

/** What may be missing, but is not there as undefined. */
export type Given<T> = { -readonly [Key in keyof T]?: Exclude<T[Key], undefined> };

function describe(value: unknown): string {
  return typeof value === "string" ? JSON.stringify(value) : inspect(value, { depth: 0 });
}

/** The one that was probably meant; undefined when none is near. */
export function nearest(key: string, known: readonly string[]): string | undefined {
  const far = known.map((name) => [distance(name.toLowerCase(), key.toLowerCase()), name] as const);
  const [best] = far.filter(([steps]) => steps <= 2).toSorted(([a], [b]) => a - b);
  return best?.[1];
}

/** Edit distance, for "did you mean". */
function distance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (let i = 1; i <= a.length; i += 1) {
    const next = [i];
    for (let j = 1; j <= b.length; j += 1) {
      const substitute = (row[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min((row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1, substitute));
    }
    row = next;
  }
  return row[b.length] ?? 0;
}
