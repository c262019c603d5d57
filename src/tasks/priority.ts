import { InvalidInputError } from "../base/errors.ts";

/** 9 first. The names stand for 8, 5 and 2. */
export type Priority = number | "high" | "normal" | "low";

export const PRIORITY_NAMES = { high: 8, normal: 5, low: 2 } as const;
export const PRIORITY_MAX = 9;
/** Where tasks wait whose worker was lost. */
export const PROBATION = -1;

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
