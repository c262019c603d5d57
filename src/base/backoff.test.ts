import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { exponentialMs, nextPollMs, withJitter } from "./backoff.ts";

describe("exponentialMs", () => {
  it("waits the base after the first failure and doubles from there", () => {
    expect([1, 2, 3, 4].map((failures) => exponentialMs(failures, 100, 5_000))).toEqual([
      100, 200, 400, 800,
    ]);
  });

  it("takes no failure for the first", () => {
    expect(exponentialMs(0, 100, 5_000)).toBe(100);
  });

  it("stays within its bounds and never shrinks, however many failures there were", () => {
    const failures = fc.integer({ min: 0, max: Number.MAX_SAFE_INTEGER });
    const base = fc.integer({ min: 1, max: 10_000 });
    fc.assert(
      fc.property(failures, base, fc.nat(1_000_000), (count, baseMs, extraMs) => {
        const maxMs = baseMs + extraMs;
        const ms = exponentialMs(count, baseMs, maxMs);
        expect(ms).toBeGreaterThanOrEqual(baseMs);
        expect(ms).toBeLessThanOrEqual(maxMs);
        expect(exponentialMs(count + 1, baseMs, maxMs)).toBeGreaterThanOrEqual(ms);
      }),
    );
  });
});

describe("withJitter", () => {
  it("lies between half and all of the wait", () => {
    expect(withJitter(1_000, () => 0)).toBe(500);
    expect(withJitter(1_000, () => 0.999_999)).toBeCloseTo(1_000, 2);
    for (let time = 0; time < 100; time += 1) {
      expect(withJitter(1_000)).toBeGreaterThanOrEqual(500);
      expect(withJitter(1_000)).toBeLessThanOrEqual(1_000);
    }
  });
});

describe("nextPollMs", () => {
  it.each([
    ["starts at the base", [0, 100, 1_000], 100],
    ["doubles", [100, 100, 1_000], 200],
    ["stops at the maximum", [800, 100, 1_000], 1_000],
    ["stays at the maximum", [1_000, 100, 1_000], 1_000],
    ["does not grow without a maximum", [300, 100, 0], 300],
    ["starts at the base even when the maximum is below it", [0, 100, 50], 100],
  ] as const)("%s", (_, [current, base, max], expected) => {
    expect(nextPollMs(current, base, max)).toBe(expected);
  });
});
