import { describe, expect, it } from "vitest";
import { KEPT_SECONDS, type Moment, NOTHING_YET, type Second } from "../../live/live-state.ts";
import { backlogOf, lastKnown, recentMean, seriesOf } from "./series.ts";

const second = (at: number, given: Partial<Second> = {}): Second => ({
  at,
  enqueued: 0,
  started: 0,
  completed: 0,
  failed: 0,
  retried: 0,
  waitMs: [],
  runMs: [],
  ...given,
});

describe("the series of the plots", () => {
  it("have a point for each second that is over, zero where nothing happened", () => {
    const known = [
      second(100, { completed: 4, enqueued: 5 }),
      second(102, { failed: 1, retried: 2 }),
      second(103, { completed: 9 }), // Not over yet.
    ];
    expect(seriesOf(known, 103)).toMatchObject({
      times: [100, 101, 102],
      completed: [4, 0, 0],
      enqueued: [5, 0, 0],
      failed: [0, 0, 1],
      retried: [0, 0, 2],
    });
  });

  it("begin with the first second that is known, and no earlier than they are kept", () => {
    expect(seriesOf([], 1_000).times).toHaveLength(KEPT_SECONDS - 1);
    const { times } = seriesOf([second(1), second(999)], 1_000);
    expect([times[0], times.at(-1)]).toEqual([1_000 - KEPT_SECONDS + 1, 999]);
    expect(seriesOf([second(1_000)], 1_000).times).toEqual([]);
  });

  it("have quantiles of the last ten seconds, and none where nothing ended", () => {
    const runMs = [0, 0, 0, 0, 0, 4, 4]; // Four up to 50 ms, four up to 100 ms.
    const { runP50, runP95, waitP95 } = seriesOf([second(100), second(101, { runMs })], 113);
    expect(runP50).toEqual([null, ...Array.from({ length: 10 }, () => 50), null, null]);
    expect(runP95[1]).toBe(95);
    expect(lastKnown(runP95)).toBeUndefined();
    expect(new Set(waitP95)).toEqual(new Set([null]));
  });

  it("add the classes of the seconds that a quantile is of", () => {
    const known = [second(100, { waitMs: [9, 0] }), second(101, { waitMs: [0, 1] })];
    expect(seriesOf(known, 102).waitP95.map((ms) => ms?.toFixed(2))).toEqual(["0.95", "1.50"]);
  });

  it("are told as the mean of the last ten", () => {
    expect(recentMean([])).toBe(0);
    expect(recentMean([100, ...Array.from({ length: 10 }, () => 3)])).toBe(3);
    expect(recentMean([1, 2])).toBe(1.5);
  });

  it("have the backlog as the cluster told it", () => {
    const rest = { serverAt: 0, latest: 0, lag: 0, checkpoints: {}, beats: {} };
    const moments: readonly Moment[] = [
      { at: 10, depth: 7, oldestSeconds: 2, ...rest },
      { at: 12, depth: 5, oldestSeconds: 3, ...rest },
    ];
    expect(backlogOf({ ...NOTHING_YET, moments })).toEqual({
      times: [10, 12],
      oldest: [2, 3],
      depth: [7, 5],
    });
  });
});
