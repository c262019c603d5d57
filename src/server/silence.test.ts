import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { ConfigError } from "../base/errors.ts";
import { resolveSilence } from "./silence.ts";

const sumOf = (silence: ReturnType<typeof resolveSilence>): number =>
  Object.values(silence).reduce((sum, seconds) => sum + seconds, 0);

describe("how long a silent worker keeps its tasks", () => {
  it.each([
    ["a minute", 60, { keepaliveSeconds: 30, keepaliveTimeoutSeconds: 10, graceSeconds: 2 }],
    ["no lease at all", Infinity, resolveSilence(60, {})],
    ["30 s", 30, { keepaliveSeconds: 18, keepaliveTimeoutSeconds: 10, graceSeconds: 2 }],
    ["5 s", 5, { keepaliveSeconds: 1.25, keepaliveTimeoutSeconds: 2.5, graceSeconds: 1.25 }],
    ["1 s", 1, { keepaliveSeconds: 0.25, keepaliveTimeoutSeconds: 0.5, graceSeconds: 0.25 }],
  ])("fits by default into a lease of %s", (_what, leaseSeconds, silence) => {
    expect(resolveSilence(leaseSeconds, {})).toEqual(silence);
  });

  it("is derived from what was given", () => {
    expect(resolveSilence(60, { graceSeconds: 40 })).toEqual({
      keepaliveSeconds: 10,
      keepaliveTimeoutSeconds: 10,
      graceSeconds: 40,
    });
    expect(resolveSilence(10, { keepaliveSeconds: 5 }).keepaliveTimeoutSeconds).toBe(3);
    expect(resolveSilence(10, { keepaliveTimeoutSeconds: 1 }).keepaliveSeconds).toBe(7);
  });

  it("is never longer than the lease, or is refused", () => {
    const seconds = fc.option(fc.double({ min: 0.1, max: 100, noNaN: true }), { nil: undefined });
    const given = fc.record({
      keepaliveSeconds: seconds,
      keepaliveTimeoutSeconds: seconds,
      graceSeconds: seconds,
    });
    fc.assert(
      fc.property(fc.double({ min: 1, max: 200, noNaN: true }), given, (leaseSeconds, parts) => {
        try {
          const silence = resolveSilence(leaseSeconds, parts);
          expect(sumOf(silence)).toBeLessThan(leaseSeconds + 0.001);
          expect(silence.keepaliveSeconds).toBeGreaterThanOrEqual(0.1);
          expect(silence.keepaliveTimeoutSeconds).toBeGreaterThanOrEqual(0.1);
        } catch (error) {
          expect(error).toBeInstanceOf(ConfigError);
          // Only what was given can be too long.
          expect(Object.values(parts).some((part) => part !== undefined)).toBe(true);
        }
      }),
    );
  });

  it("is refused with what to do when it cannot fit", () => {
    const refused = (leaseSeconds: number, given: object) => () =>
      resolveSilence(leaseSeconds, given);
    expect(refused(5, { keepaliveSeconds: 30, keepaliveTimeoutSeconds: 10 })).toThrow(
      "keepaliveSeconds (30), keepaliveTimeoutSeconds (10) and graceSeconds (1.25) must together " +
        "be at most leaseSeconds (5), or a worker that falls silent keeps its tasks past their " +
        "lease: lower them or leave them out, or raise leaseSeconds",
    );
    expect(refused(5, { graceSeconds: 5 })).toThrow("keepaliveSeconds (>= 0.1)");
    expect(refused(60, { keepaliveSeconds: 58 })).toThrow("keepaliveTimeoutSeconds (>= 0.1)");
    expect(refused(60, { keepaliveSeconds: 0 })).toThrow("of at least 0.1");
    expect(refused(60, { graceSeconds: "2" })).toThrow(ConfigError);
  });
});
