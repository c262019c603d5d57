import type { Moment } from "./live-state.ts";

/** The cluster is told every two seconds, and at the least every five. */
const HOLE_SECONDS = 6;
/** Clocks drift apart slowly; whoever sets one is believed after so long. */
const SKEW_SECONDS = 30;

/** Seconds since 1970, by the clock of the database. */
export interface Span {
  readonly from: number;
  readonly to: number;
}

/**
 * How far the clock of the database is ahead of this browser's, in seconds. What is told was on the
 * way for a while, which makes the difference look smaller: the largest of late is the nearest.
 */
export function skewOf(moments: readonly Moment[]): number {
  const last = moments.at(-1);
  if (last === undefined) return 0;
  const recent = moments.filter(({ at }) => at >= last.at - SKEW_SECONDS);
  return Math.max(...recent.map(({ at, serverAt }) => serverAt - at));
}

/** When nobody looked, up to now: before the first look, and while there was none for long. */
export function unwatchedOf(moments: readonly Moment[], now: number): Span[] {
  const looks = [...moments.map(({ serverAt }) => serverAt), now];
  return looks.flatMap((to, index) => {
    const from = looks[index - 1] ?? Number.NEGATIVE_INFINITY;
    return to - from > HOLE_SECONDS ? [{ from, to }] : [];
  });
}

/** For how many seconds, up to the last look, the cluster was watched without a hole. */
export function watchedSeconds(moments: readonly Moment[]): number {
  const last = moments.at(-1)?.serverAt;
  if (last === undefined) return 0;
  return last - (unwatchedOf(moments, last).at(-1)?.to ?? last);
}
