import { InvalidInputError } from "../base/errors.ts";

/** 9 first. The names stand for 8, 5 and 2. */
export type Priority = number | "high" | "normal" | "low";

export const PRIORITY_NAMES = { high: 8, normal: 5, low: 2 } as const;
export const PRIORITY_MAX = 9;
/** Where tasks wait whose worker was lost. */
export const PROBATION = -1;

/** More than any waiting adds. */
const FIRST = 1e12;

interface Ranked {
  readonly priority: number;
  readonly isOnProbation: boolean;
}

/**
 * The highest comes first. All wait at the same pace: since when they do is all that differs. What
 * is on probation had its turn when its worker was lost, and comes before everything else: no more
 * than one of it is here at once, so that others hardly notice.
 */
export function rankOf(
  { priority, isOnProbation }: Ranked,
  sinceMs: number,
  agingSeconds: number,
): number {
  return (isOnProbation ? FIRST : 0) + priority - sinceMs / 1000 / agingSeconds;
}

export function priorityNumber(priority: Priority): number {
  if (typeof priority === "string" && Object.hasOwn(PRIORITY_NAMES, priority)) {
    return PRIORITY_NAMES[priority];
  }
  const isLevel = Number.isInteger(priority) && Number(priority) >= 0;
  if (isLevel && Number(priority) <= PRIORITY_MAX) return Number(priority);
  throw new InvalidInputError(
    `priority must be a whole number from 0 to ${PRIORITY_MAX}, or "high", "normal" or "low", ` +
      `not ${JSON.stringify(priority)}`,
  );
}
