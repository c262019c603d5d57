import type { Quota, QuotaUse } from "../../api/types.ts";
import { formatBytes, formatCount, plural } from "../../format.ts";
import { rateText, readRate } from "../../rate-text.ts";

type Limits = Omit<Quota, "tenant">;

export function describeQuota({ pendingTasks, pendingBytes, rate }: Limits): string {
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

/** A quota as a person types it; nothing for no limit. */
export type QuotaTexts = Readonly<Record<keyof Limits, string>>;
export type QuotaChanges = { -readonly [Name in keyof Limits]?: Limits[Name] };

export const textsOf = ({ pendingTasks, pendingBytes, rate }: Limits): QuotaTexts => ({
  pendingTasks: pendingTasks === null ? "" : String(pendingTasks),
  pendingBytes: pendingBytes === null ? "" : String(pendingBytes),
  rate: rateText(rate),
});

/** Only what differs: what was not touched stays as it is, however it was written. */
export function changesOf(before: Limits, texts: QuotaTexts): QuotaChanges {
  const old = textsOf(before);
  const isChanged = (name: keyof Limits): boolean => texts[name].trim() !== old[name];
  const changes: QuotaChanges = {};
  if (isChanged("pendingTasks")) changes.pendingTasks = readLimit("Tasks", texts.pendingTasks);
  if (isChanged("pendingBytes")) changes.pendingBytes = readLimit("Bytes", texts.pendingBytes);
  if (isChanged("rate")) changes.rate = readRate("Creates", texts.rate);
  return changes;
}

/** A whole number, or null for an empty text. Throws what a person should read. */
function readLimit(label: string, text: string): number | null {
  const given = text.trim();
  if (given === "") return null;
  if (!/^\d{1,15}$/.test(given)) throw new Error(`${label}: a whole number, or nothing.`);
  return Number(given);
}
