import type { Queue } from "../../api/types.ts";
import { rateText, readRate } from "../../rate-text.ts";

/** Limits as a person types them; nothing for none. */
export interface LimitTexts {
  readonly concurrency: string;
  readonly rate: string;
  readonly keyRate: string;
}

type Limits = Queue["limits"];
export type LimitChanges = { -readonly [Name in keyof Limits]?: Limits[Name] };

export const textsOf = ({ concurrency, rate, keyRate }: Limits): LimitTexts => ({
  concurrency: concurrency === null ? "" : String(concurrency),
  rate: rateText(rate),
  keyRate: rateText(keyRate),
});

/** Only what differs: what somebody else changes meanwhile stays as they want it. */
export function changesOf(before: Limits, texts: LimitTexts): LimitChanges {
  const old = textsOf(before);
  const changes: LimitChanges = {};
  if (texts.concurrency.trim() !== old.concurrency) {
    changes.concurrency = readCount("Tasks that run at once", texts.concurrency);
  }
  if (texts.rate.trim() !== old.rate) changes.rate = readRate("Starts per time", texts.rate);
  if (texts.keyRate.trim() !== old.keyRate) {
    changes.keyRate = readRate("Starts of one key", texts.keyRate);
  }
  return changes;
}

function readCount(label: string, text: string): number | null {
  if (text.trim() === "") return null;
  if (/^\d{1,9}$/.test(text.trim())) return Number(text);
  throw new Error(`${label}: a whole number, or nothing.`);
}
