import type { Queue } from "../../api/types.ts";
import { formatCount } from "../../format.ts";

export const depthOf = ({ depths = {} }: Queue): number =>
  Object.values(depths).reduce((sum, count) => sum + count, 0);

/** Live tasks by priority, the highest first, in words. */
export function describeDepths({ depths = {} }: Queue): string {
  return Object.entries(depths)
    .filter(([, count]) => count > 0)
    .sort(([a], [b]) => Number(b) - Number(a))
    .map(([priority, count]) => `${formatCount(count)} ${laneOf(Number(priority))}`)
    .join(", ");
}

/** Below all priorities wait those whose worker was lost. */
const laneOf = (priority: number): string =>
  priority < 0 ? "on probation" : `of priority ${priority}`;

export function describeLimits({ limits }: Queue): string {
  const { concurrency, rate, keyRate } = limits;
  const parts = [
    ...(concurrency === null ? [] : [`${concurrency} at once`]),
    ...(rate === null ? [] : [`${rate.count} per ${rate.seconds} s`]),
    ...(keyRate === null ? [] : [`${keyRate.count} per ${keyRate.seconds} s of a key`]),
  ];
  return parts.join(", ") || "none";
}
