import { expect, it } from "vitest";
import type { Moment } from "../../live/live-state.ts";
import { beatsOf, longestSilence } from "./beats.ts";

const moment = (at: number, beat?: number): Moment => ({
  at,
  depth: 0,
  oldestSeconds: 0,
  lag: 0,
  checkpoints: {},
  beats: beat === undefined ? {} : { w: beat },
});

it("counts each heartbeat once", () => {
  const moments = [moment(2, 1), moment(4, 1.02), moment(6, 4), moment(8, 7.1), moment(10)];
  expect(beatsOf(moments, "w")).toEqual([1, 4, 7.1]);
  expect(beatsOf(moments, "other")).toEqual([]);
});

it("finds the longest silence, that of now included", () => {
  expect(longestSilence([1, 4, 7], 8)).toBe(3);
  expect(longestSilence([1, 4, 7], 30)).toBe(23);
  expect(longestSilence([], 30)).toBe(0);
});
