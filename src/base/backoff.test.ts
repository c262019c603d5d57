import fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  type BackoffPolicy,
  DEFAULT_BACKOFF,
  exponentialMs,
  nextPollMs,
  resolveBackoff,
  retryDelaySeconds,
  withJitter,
} from "./backoff.ts";
import { ConfigError } from "./errors.ts";

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

describe("retryDelaySeconds", () => {
  const delays = (kind: BackoffPolicy["kind"], random?: () => number): number[] =>
    [1, 2, 3, 4, 5].map((attempt) =>
      retryDelaySeconds({ kind, baseSeconds: 5, maxSeconds: 60 }, attempt, random),
    );

  it.each([
    ["fixed", [5, 5, 5, 5, 5]],
    ["linear", [5, 10, 15, 20, 25]],
    ["exponential", [5, 10, 20, 40, 60]],
  ] as const)("%s grows from the base after the first attempt", (kind, expected) => {
    expect(delays(kind)).toEqual(expected);
  });

  it("jitters over the upper half, or over all, of the exponential pause", () => {
    expect(delays("equal-jitter", () => 0)).toEqual([2.5, 5, 10, 20, 30]);
    expect(delays("equal-jitter", () => 0.5)).toEqual([3.75, 7.5, 15, 30, 45]);
    expect(delays("full-jitter", () => 0)).toEqual([0, 0, 0, 0, 0]);
    expect(delays("full-jitter", () => 0.5)).toEqual([2.5, 5, 10, 20, 30]);
  });

  it("stays between nothing and the maximum, and never shrinks without jitter", () => {
    const seconds = fc.oneof(
      fc.constantFrom(0, 5e-324, Number.MAX_VALUE),
      fc.double({ min: 0, max: 1e9, noNaN: true }),
    );
    const policies = fc.record({
      kind: fc.constantFrom<BackoffPolicy["kind"][]>(
        "fixed",
        "linear",
        "exponential",
        "equal-jitter",
        "full-jitter",
      ),
      baseSeconds: seconds,
      maxSeconds: seconds,
    });
    const attempts = fc.oneof(
      fc.integer({ min: 1, max: 2_000 }),
      fc.constantFrom(0, 1e6, Number.MAX_SAFE_INTEGER, Infinity),
    );
    const random = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true });
    fc.assert(
      fc.property(policies, attempts, random, (policy, attempt, drawn) => {
        const delay = retryDelaySeconds(policy, attempt, () => drawn);
        expect(delay).toBeGreaterThanOrEqual(0);
        expect(delay).toBeLessThanOrEqual(policy.maxSeconds);
        if (policy.kind.endsWith("jitter")) return;
        expect(retryDelaySeconds(policy, attempt + 1)).toBeGreaterThanOrEqual(delay);
      }),
      { numRuns: 1_000 },
    );
  });

  it("retries at once for ever with a base of nothing", () => {
    for (const kind of ["linear", "exponential", "full-jitter"] as const) {
      expect(retryDelaySeconds({ kind, baseSeconds: 0, maxSeconds: 60 }, 1e6)).toBe(0);
    }
  });

  it("reaches the default maximum of a quarter of an hour, and no more", () => {
    expect(retryDelaySeconds(DEFAULT_BACKOFF, 1e6, () => 1)).toBe(900);
    expect(retryDelaySeconds(DEFAULT_BACKOFF, 1, () => 1)).toBe(5);
  });
});

describe("resolveBackoff", () => {
  it("fills in what was left out", () => {
    expect(resolveBackoff(undefined)).toEqual(DEFAULT_BACKOFF);
    expect(resolveBackoff({})).toEqual(DEFAULT_BACKOFF);
    expect(resolveBackoff({ kind: "fixed", maxSeconds: undefined })).toEqual({
      kind: "fixed",
      baseSeconds: 5,
      maxSeconds: 900,
    });
  });

  it("takes a base above the default maximum for the maximum too", () => {
    const hourly = { kind: "fixed", baseSeconds: 3_600, maxSeconds: 3_600 };
    expect(resolveBackoff({ kind: "fixed", baseSeconds: 3_600 })).toEqual(hourly);
  });

  it.each([
    [{ kind: "expo" }, 'backoff.kind must be "fixed" or "linear" or'],
    [{ kind: null }, "backoff.kind must be"],
    [{ base: 5 }, 'unknown backoff option "base"; known are kind, baseSeconds, maxSeconds'],
    [{ baseSecond: 5 }, 'did you mean "baseSeconds"?'],
    [{ baseSeconds: -1 }, "backoff.baseSeconds must be a number of at least 0"],
    [{ baseSeconds: "5" }, 'not "5"'],
    [{ maxSeconds: Number.NaN }, "backoff.maxSeconds must be a number"],
    [{ maxSeconds: null }, "backoff.maxSeconds must be a number"],
    [{ maxSeconds: 1e12 }, "at most 31536000"],
    [{ baseSeconds: 10, maxSeconds: 5 }, "raise the first or lower the second"],
    ["exponential", "backoff must be an object such as"],
    [null, "backoff must be an object such as"],
    [[], "backoff must be an object such as"],
  ])("refuses %j and says what to do", (given, message) => {
    expect(() => resolveBackoff(given)).toThrow(ConfigError);
    expect(() => resolveBackoff(given)).toThrow(message);
  });
});
