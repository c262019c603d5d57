import { expect, it } from "vitest";
import { changesOf, textsOf } from "./limit-text.ts";

const NONE = { concurrency: null, rate: null, keyRate: null };
const SOME = { concurrency: 5, rate: { count: 50, seconds: 10 }, keyRate: null };

it("sends only what a person changed", () => {
  expect(changesOf(SOME, textsOf(SOME))).toEqual({});
  expect(changesOf(SOME, { ...textsOf(SOME), concurrency: " 7 " })).toEqual({ concurrency: 7 });
  expect(changesOf(SOME, { ...textsOf(SOME), rate: "" })).toEqual({ rate: null });
});

it("reads rates as people write them", () => {
  const rateOf = (rate: string): unknown => changesOf(NONE, { ...textsOf(NONE), rate }).rate;
  expect(rateOf("50")).toEqual({ count: 50, seconds: 1 });
  expect(rateOf("50/s")).toEqual({ count: 50, seconds: 1 });
  expect(rateOf("50 per 0.5 s")).toEqual({ count: 50, seconds: 0.5 });
  for (const text of ["many", "0", "-1", "5 per 0 s", "5 per day"]) {
    expect(() => rateOf(text), text).toThrow("such as 50 per 1 s");
  }
  expect(() => changesOf(NONE, { ...textsOf(NONE), concurrency: "1.5" })).toThrow("a whole number");
});
