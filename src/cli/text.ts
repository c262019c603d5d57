import { oneLine } from "./errors.ts";
import { toJson } from "./output.ts";
import { formatSeconds } from "./table.ts";

/** What others wrote, on one line, and without characters that would command the terminal. */
export function shown(text: string): string {
  return oneLine(text).replace(/\p{Cc}/gu, "?");
}

/** To the second, for logs to compare with; and how long ago, for the eye. */
export function formatInstant(date: Date): string {
  return `${date.toISOString().replace(/\.\d+Z$/, "Z")} (${formatAge(date)})`;
}

export function formatAge(date: Date): string {
  const seconds = (Date.now() - date.getTime()) / 1000;
  return seconds < 0 ? `in ${formatSeconds(-seconds)}` : `${formatSeconds(seconds)} ago`;
}

/** A document over several lines, each indented, and safe to show. */
export function documentLines(value: unknown): string[] {
  const lines =
    value instanceof Uint8Array
      ? [`${value.byteLength} bytes: ${Buffer.from(value).toString("base64")}`]
      : toJson(value, 2).split("\n");
  return lines.map((line) => `  ${line.replace(/\p{Cc}/gu, "?")}`);
}

/** JSON has no bytes. */
export function forJson(value: unknown): unknown {
  if (!(value instanceof Uint8Array)) return value;
  return { base64: Buffer.from(value).toString("base64") };
}

/** "1 dead letter", "2 dead letters". */
export function many(count: number, noun: string): string {
  return `${count.toLocaleString("en-US")} ${noun}${count === 1 ? "" : "s"}`;
}
