import type { Quota, QuotaUse, Rate } from "../../api/types.ts";
import { formatBytes, formatCount, plural } from "../../format.ts";

export function describeQuota({ pendingTasks, pendingBytes, rate }: Omit<Quota, "tenant">): string {
  const parts = [
    ...(pendingTasks === null ? [] : [`${formatCount(pendingTasks)} tasks`]),
    ...(pendingBytes === null ? [] : [formatBytes(pendingBytes)]),
    ...(rate === null ? [] : [`${formatCount(rate.count)} creates per ${rate.seconds} s`]),
  ];
  return parts.join(", ") || "no limit";
}

/** To ask what is used counts tasks, which is not done all the time. */
export const USE_REFRESH_MS = 15_000;

/** What is counted against a quota. Nothing is, where nothing is limited. */
export function describeUse({ pendingTasks, pendingBytes, used }: QuotaUse): string {
  if (pendingTasks === null && pendingBytes === null) return "not counted without a limit";
  return `${plural(used.tasks, "task")}, ${formatBytes(used.bytes)}`;
}

/** A whole number, or null for an empty text. Throws what a person should read. */
export function readLimit(label: string, text: string): number | null {
  const given = text.trim();
  if (given === "") return null;
  if (!/^\d{1,15}$/.test(given)) throw new Error(`${label}: a whole number, or nothing.`);
  return Number(given);
}

/** So many per second, or null. */
export function readRate(label: string, text: string): Rate | null {
  const count = readLimit(label, text);
  if (count === 0) throw new Error(`${label}: at least 1, or nothing.`);
  return count === null ? null : { count, seconds: 1 };
}
