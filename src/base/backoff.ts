/** Doubles from `baseMs` up to `maxMs`: failure 1 waits the base. Never overflows. */
export function exponentialMs(failures: number, baseMs: number, maxMs: number): number {
  const doublings = Math.max(0, failures - 1);
  if (doublings >= 40) return maxMs;
  return Math.min(maxMs, baseMs * 2 ** doublings);
}

/** Between half and all of `ms`, so that processes that failed together do not return together. */
export function withJitter(ms: number, random: () => number = Math.random): number {
  return ms / 2 + (ms / 2) * random();
}

/** The idle wait of a polling loop: doubles from the base while nothing is found. */
export function nextPollMs(currentMs: number, baseMs: number, maxMs: number): number {
  if (currentMs <= 0) return Math.min(baseMs, Math.max(maxMs, baseMs));
  if (maxMs <= 0) return currentMs;
  return Math.min(currentMs * 2, maxMs);
}
