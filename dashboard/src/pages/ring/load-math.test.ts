import { expect, it } from "vitest";
import { atLeast, sumOf } from "./load-math.ts";

const LOAD = {
  buckets: [
    { bucket: 3, waiting: 100, running: 1, ended: 5, isCut: true },
    { bucket: 7, waiting: 2, running: 0, ended: 0, isCut: false },
  ],
  keys: [],
  looked: { perBucket: 100, ended: 5_000 },
};

it("adds up what buckets have, and remembers what was not counted", () => {
  expect(sumOf(LOAD, [3, 7, 9])).toEqual({ waiting: 102, running: 1, ended: 5, isCut: true });
  expect(sumOf(LOAD, [7])).toEqual({ waiting: 2, running: 0, ended: 0, isCut: false });
  expect(sumOf(undefined, [7]).waiting).toBe(0);
  expect(atLeast(1_000, true)).toBe("more than 1,000");
});
