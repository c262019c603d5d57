import { describe, expect, it } from "vitest";
import { ManualClock } from "../../test/support/manual-clock.ts";
import { KeyRates, keyRatesOf } from "./key-rates.ts";
import { NO_LIMITS, type Rate } from "./limits.ts";

const PER_MINUTE = { count: 4, seconds: 60 };
const PER_SECOND = { count: 2, seconds: 1 };

/** Rates of an owner that has been one for long. */
function ratesOf(...rates: Rate[]): { rates: KeyRates; clock: ManualClock } {
  const clock = new ManualClock();
  const owned = new KeyRates(rates, clock);
  clock.advance(1_000_000);
  return { rates: owned, clock };
}

/** How many more of the key may start now. */
function allowedOf(rates: KeyRates): number {
  return Math.min(rates.fresh(), ...rates.spent().map(({ allowed }) => allowed));
}

describe("the rates of keys of queues that share them", () => {
  it("are all that are set, each once", () => {
    const limits = new Map([
      ["receipts", { ...NO_LIMITS, keyRate: PER_MINUTE }],
      ["refunds", { ...NO_LIMITS, keyRate: PER_SECOND }],
      ["returns", { ...NO_LIMITS, keyRate: { ...PER_SECOND } }],
      ["others", { ...NO_LIMITS, keyRate: { count: 1, seconds: 1 } }],
    ]);
    const queues = ["receipts", "refunds", "returns", "unlimited"];
    expect(keyRatesOf(queues, limits)).toEqual([PER_MINUTE, PER_SECOND]);
    expect(keyRatesOf(["unlimited"], limits)).toEqual([]);
  });

  it("hold together: neither a burst nor the long run is too much", () => {
    const { rates, clock } = ratesOf(PER_MINUTE, PER_SECOND);
    let started = 0;
    const start = (): void => {
      for (let left = allowedOf(rates); left > 0; left -= 1) {
        rates.spend("default", "key");
        started += 1;
      }
    };
    start();
    expect(started).toBe(2);
    clock.advance(1_100);
    start();
    expect(started).toBe(4);
    clock.advance(50_000);
    start();
    expect(started).toBe(4);
    clock.advance(12_000);
    start();
    expect(started).toBe(6);
  });
});

describe("a rate of keys", () => {
  it("starts nothing for one period after the keys were taken over", () => {
    const clock = new ManualClock();
    const rates = new KeyRates([PER_SECOND], clock);
    expect(rates.fresh()).toBe(0);
    clock.advance(rates.nextMs());
    expect(rates.fresh()).toBe(2);
    rates.restart();
    expect(rates.fresh()).toBe(0);
  });

  it("tells when a key may start again", () => {
    const { rates, clock } = ratesOf(PER_SECOND);
    rates.spend("default", "key");
    expect(rates.nextMs()).toBe(Infinity);
    clock.advance(500);
    rates.spend("default", "key");
    expect(allowedOf(rates)).toBe(0);
    clock.advance(rates.nextMs() - 1);
    expect(allowedOf(rates)).toBe(0);
    clock.advance(1);
    expect(allowedOf(rates)).toBe(1);
  });

  it("counts more keys than a call has room for arguments", () => {
    const { rates } = ratesOf({ count: 1, seconds: 60 });
    for (let key = 0; key < 150_000; key += 1) rates.spend("default", `key:${key}`);
    expect(rates.nextMs()).toBeGreaterThan(60_000);
  });
});
