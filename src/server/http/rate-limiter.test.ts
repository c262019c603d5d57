import { describe, expect, it } from "vitest";
import { ManualClock } from "../../../test/support/manual-clock.ts";
import { LimitError } from "../../base/errors.ts";
import { RateLimiter } from "./rate-limiter.ts";

function calls(limiter: RateLimiter, tenant: string, count: number): number {
  let allowed = 0;
  for (let call = 0; call < count; call += 1) {
    try {
      limiter.take(tenant);
      allowed += 1;
    } catch (error) {
      expect(error).toBeInstanceOf(LimitError);
    }
  }
  return allowed;
}

describe("RateLimiter", () => {
  it("allows a burst, then as many as the rate gives", () => {
    const clock = new ManualClock();
    const limiter = new RateLimiter({ perSecond: 10, burst: 5 }, clock);
    expect(calls(limiter, "acme", 9)).toBe(5);
    clock.advance(300);
    expect(calls(limiter, "acme", 9)).toBe(3);
    clock.advance(60_000);
    expect(calls(limiter, "acme", 9)).toBe(5);
  });

  it("says when the next call is allowed, which then it is", () => {
    const clock = new ManualClock();
    const limiter = new RateLimiter({ perSecond: 4, burst: 1 }, clock);
    limiter.take("acme");
    const refused = (): void => limiter.take("acme");
    expect(refused).toThrow(expect.objectContaining({ retryAfterMs: 250 }));
    clock.advance(249);
    expect(refused).toThrow(LimitError);
    clock.advance(1);
    limiter.take("acme");
  });

  it("counts every tenant for itself", () => {
    const limiter = new RateLimiter({ perSecond: 1, burst: 2 }, new ManualClock());
    expect(calls(limiter, "acme", 5)).toBe(2);
    expect(calls(limiter, "globex", 5)).toBe(2);
  });

  it("remembers those that called last, however many there are", () => {
    const limiter = new RateLimiter({ perSecond: 1, burst: 2 }, new ManualClock());
    calls(limiter, "acme", 2);
    for (let n = 0; n < 9_999; n += 1) limiter.take(`tenant ${n}`);
    expect(calls(limiter, "acme", 1)).toBe(0);
    for (let n = 0; n < 10_000; n += 1) limiter.take(`other ${n}`);
    expect(calls(limiter, "acme", 3)).toBe(2);
  });
});
