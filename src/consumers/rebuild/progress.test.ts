import { describe, expect, it } from "vitest";
import { estimate, remember, type Sample } from "./progress.ts";

const at = (seconds: number, position: number): Sample => ({
  atMs: seconds * 1000,
  position: BigInt(position),
});

describe("remember", () => {
  it("keeps the last minute, and at most thirty", () => {
    expect(remember([at(0, 1), at(10, 2)], at(65, 3))).toEqual([at(10, 2), at(65, 3)]);
    let samples: Sample[] = [];
    for (let second = 0; second < 100; second += 1) {
      samples = remember(samples, at(second / 10, second));
    }
    expect(samples).toHaveLength(30);
    expect(samples.at(-1)).toEqual(at(9.9, 99));
  });

  it("forgets what was further: that was another rebuild", () => {
    expect(remember([at(0, 500)], at(1, 3))).toEqual([at(1, 3)]);
  });
});

describe("estimate", () => {
  it("goes by the last look if that is a while ago", () => {
    expect(estimate([at(100, 1_000), at(110, 2_000)], 0, 5_000n)).toEqual({
      positionsPerSecond: 100,
      etaSeconds: 30,
    });
  });

  it("goes by the start if nobody looked before", () => {
    expect(estimate([at(10, 1_000)], 0, 3_000n)).toEqual({
      positionsPerSecond: 100,
      etaSeconds: 20,
    });
  });

  it("promises nothing while nothing moves", () => {
    const still = estimate([at(10, 1_000), at(20, 1_000)], 0, 3_000n);
    expect(still).toEqual({ positionsPerSecond: 0, etaSeconds: undefined });
    expect(estimate([], 0, 3_000n).etaSeconds).toBeUndefined();
  });

  it("has nothing left at the head", () => {
    expect(estimate([at(10, 3_000), at(20, 3_000)], 0, 3_000n).etaSeconds).toBe(0);
    expect(estimate([at(0, 0)], 0, 0n).etaSeconds).toBe(0);
  });
});
