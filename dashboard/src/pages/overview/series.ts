import { addClasses, KEPT_SECONDS, type LiveState, type Second } from "../../live/live-state.ts";
import { quantile } from "../../live/quantile.ts";

/** Quantiles of one second jump; of the last ten they tell something. */
const WINDOW_SECONDS = 10;

export interface OverviewSeries {
  readonly times: readonly number[];
  readonly completed: readonly number[];
  readonly enqueued: readonly number[];
  readonly failed: readonly number[];
  readonly retried: readonly number[];
  readonly waitP95: readonly (number | null)[];
  readonly runP50: readonly (number | null)[];
  readonly runP95: readonly (number | null)[];
}

/** A point for every second of the last minutes; a second in which nothing happened is zero. */
export function seriesOf(seconds: readonly Second[], now: number): OverviewSeries {
  const known = new Map(seconds.map((second) => [second.at, second]));
  const first = Math.max(now - KEPT_SECONDS + 1, seconds[0]?.at ?? now - KEPT_SECONDS + 1);
  // The present second is not over, and would always look like a drop.
  const times = Array.from({ length: Math.max(0, now - first) }, (_, index) => first + index);
  const numbers = (of: (second: Second) => number): number[] =>
    times.map((at) => {
      const second = known.get(at);
      return second === undefined ? 0 : of(second);
    });
  const quantiles = (of: (second: Second) => readonly number[], part: number) =>
    times.map((at) => {
      let classes: readonly number[] = [];
      for (let back = 0; back < WINDOW_SECONDS; back += 1) {
        const second = known.get(at - back);
        if (second !== undefined && of(second).length > 0)
          classes = addClasses(classes, of(second));
      }
      return quantile(classes, part) ?? null;
    });
  return {
    times,
    completed: numbers(({ completed }) => completed),
    enqueued: numbers(({ enqueued }) => enqueued),
    failed: numbers(({ failed }) => failed),
    retried: numbers(({ retried }) => retried),
    waitP95: quantiles(({ waitMs }) => waitMs, 0.95),
    runP50: quantiles(({ runMs }) => runMs, 0.5),
    runP95: quantiles(({ runMs }) => runMs, 0.95),
  };
}

/** The mean of the last so many; 0 when there are none. */
export function recentMean(values: readonly number[], count = WINDOW_SECONDS): number {
  const recent = values.slice(-count);
  return recent.length === 0 ? 0 : recent.reduce((sum, value) => sum + value, 0) / recent.length;
}

export const lastKnown = (values: readonly (number | null)[]): number | undefined =>
  values.at(-1) ?? undefined;

/** What waits, as the cluster told it. */
export function backlogOf({ moments }: LiveState): {
  readonly times: readonly number[];
  readonly oldest: readonly number[];
  readonly depth: readonly number[];
} {
  return {
    times: moments.map(({ at }) => at),
    oldest: moments.map(({ oldestSeconds }) => oldestSeconds),
    depth: moments.map(({ depth }) => depth),
  };
}
