/** Upper bounds of the classes of the feed, in milliseconds: src/server/feed/histogram.ts. */
export const BOUNDS_MS = [
  1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000, 300_000,
] as const;

/**
 * The value below which that part of them is, as if they were spread evenly within their class;
 * undefined when there are none.
 */
export function quantile(classes: readonly number[], part: number): number | undefined {
  const total = classes.reduce((sum, count) => sum + count, 0);
  if (total === 0) return undefined;
  const wanted = total * part;
  let passed = 0;
  for (const [index, count] of classes.entries()) {
    if (count === 0 || passed + count < wanted) {
      passed += count;
      continue;
    }
    const low = index === 0 ? 0 : (BOUNDS_MS[index - 1] ?? 0);
    const high = BOUNDS_MS[index] ?? low; // Of what is above the last bound, no more is known.
    return low + ((wanted - passed) / count) * (high - low);
  }
  return BOUNDS_MS.at(-1);
}
