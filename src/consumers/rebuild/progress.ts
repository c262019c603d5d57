/** Where the slowest partition of a rebuild was, and when. */
export interface Sample {
  readonly atMs: number;
  readonly position: bigint;
}

/** What is remembered of one rebuild: enough to see how fast it is now. */
const SAMPLES_MAX = 30;
const SAMPLES_MS = 60_000;

/** Those that still say something about the present, with the new one. */
export function remember(samples: readonly Sample[], newest: Sample): Sample[] {
  const recent = samples.filter(
    ({ atMs, position }) => newest.atMs - atMs <= SAMPLES_MS && position <= newest.position,
  );
  return [...recent, newest].slice(-SAMPLES_MAX);
}

export interface Estimate {
  readonly positionsPerSecond: number | undefined;
  readonly etaSeconds: number | undefined;
}

/**
 * How fast it goes, and how long it takes to the head as that is now. By the samples if they are a
 * while apart, else by what was done since it started.
 */
export function estimate(samples: readonly Sample[], startedAtMs: number, head: bigint): Estimate {
  const newest = samples.at(-1);
  const oldest = samples[0];
  if (newest === undefined || oldest === undefined) {
    return { positionsPerSecond: undefined, etaSeconds: undefined };
  }
  const isApart = newest.atMs - oldest.atMs >= 1_000;
  const from = isApart ? oldest : { atMs: startedAtMs, position: 0n };
  const seconds = (newest.atMs - from.atMs) / 1000;
  const left = head > newest.position ? Number(head - newest.position) : 0;
  if (seconds <= 0) {
    return { positionsPerSecond: undefined, etaSeconds: left === 0 ? 0 : undefined };
  }
  const rate = Number(newest.position - from.position) / seconds;
  const etaSeconds = left === 0 ? 0 : rate > 0 ? left / rate : undefined;
  return { positionsPerSecond: rate, etaSeconds };
}
