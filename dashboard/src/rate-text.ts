import type { Rate } from "./api/types.ts";

/** As `readRate` takes it; nothing for none. */
export const rateText = (rate: Rate | null): string =>
  rate === null ? "" : `${rate.count} per ${rate.seconds} s`;

/** "50", "50 per 10 s", "50/s". Throws what a person should read. */
export function readRate(label: string, text: string): Rate | null {
  if (text.trim() === "") return null;
  const found = /^(\d{1,9})(?:\s*(?:per|\/)\s*(\d+(?:\.\d+)?)?\s*(?:s|seconds?)?)?$/.exec(
    text.trim(),
  );
  const [, count, seconds = "1"] = found ?? [];
  if (Number(count) >= 1 && Number(seconds) > 0) {
    return { count: Number(count), seconds: Number(seconds) };
  }
  throw new Error(`${label}: such as 50 per 1 s, or nothing.`);
}
