import { expect, it } from "vitest";
import type { Moment } from "./live-state.ts";
import { skewOf, unwatchedOf, watchedSeconds } from "./watched.ts";

const NOTHING = { latest: 0, depth: 0, oldestSeconds: 0, lag: 0, checkpoints: {}, beats: {} };
const looks = (...times: readonly (readonly [at: number, serverAt: number])[]): Moment[] =>
  times.map(([at, serverAt]) => ({ at, serverAt, ...NOTHING }));

it("knows when nobody looked", () => {
  const moments = looks([2, 2], [4, 4], [60, 60], [62, 62]);
  const before = { from: Number.NEGATIVE_INFINITY, to: 2 };
  expect(unwatchedOf(moments, 63)).toEqual([before, { from: 4, to: 60 }]);
  expect(unwatchedOf(moments, 70)).toEqual([before, { from: 4, to: 60 }, { from: 62, to: 70 }]);
  expect([watchedSeconds(moments), watchedSeconds([])]).toEqual([2, 0]);
});

it("knows the clock of the database, whatever the clock of the browser says", () => {
  expect(skewOf([])).toBe(0);
  // One was two seconds on its way.
  expect(skewOf(looks([100, 400], [104, 402], [106, 405.9]))).toBe(300);
  // Somebody set the clock of the browser, a while ago.
  expect(skewOf(looks([100, 400], [140, 140], [142, 142]))).toBe(0);
});
