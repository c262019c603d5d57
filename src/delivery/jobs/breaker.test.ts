import fc from "fast-check";
import { expect, it } from "vitest";
import { type Breaker, CLOSED, called, heard, type News, waitMs } from "./breaker.ts";

const RULES = { failuresMax: 3, openMs: 100, openMsMax: 1_000 };
const at = (nowMs: number, isProbe = false) => ({ nowMs, isProbe, rules: RULES });

/** After so many failures in a row. */
function after(failures: number): Breaker {
  let breaker = CLOSED;
  for (let n = 0; n < failures; n += 1) breaker = heard(breaker, "dead", at(0));
  return breaker;
}

it("opens after so many failures in a row, and an answer in between starts anew", () => {
  expect(after(2)).toEqual({ state: "closed", failures: 2 });
  expect(heard(after(2), "alive", at(0))).toBe(CLOSED);
  expect(after(3)).toEqual({ state: "open", untilMs: 100, opens: 1 });
  expect(waitMs(after(3), 40)).toBe(60);
});

it("lets one call find out, and stays open for twice as long each time", () => {
  let breaker = after(3);
  const waits: number[] = [];
  for (let nowMs = 100, n = 0; n < 6; n += 1) {
    expect(waitMs(breaker, nowMs)).toBe(0);
    const probing = called(breaker);
    expect(probing).toMatchObject({ state: "probing" });
    expect(waitMs(probing, nowMs)).toBe(Infinity);
    breaker = heard(probing, "dead", at(nowMs, true));
    waits.push(waitMs(breaker, nowMs));
    nowMs += waits.at(-1) ?? 0;
  }
  expect(waits).toEqual([200, 400, 800, 1_000, 1_000, 1_000]);
  expect(heard(called(breaker), "alive", at(9_999, true))).toBe(CLOSED);
});

it("hears of calls that began before it opened", () => {
  const open = after(3);
  expect(heard(open, "dead", at(50))).toBe(open);
  const probing = called(open);
  expect(heard(probing, "dead", at(120))).toBe(probing); // Not the probe: it is still out.
  expect(heard(probing, "alive", at(120))).toBe(CLOSED);
});

it("makes the next call the probe when nothing was found out", () => {
  const breaker = heard(called(after(3)), "unknown", at(150, true));
  expect(waitMs(breaker, 150)).toBe(0);
  expect(called(breaker)).toEqual({ state: "probing", opens: 1 });
});

it("keeps the pause that a target asks for, and holds no failure against it", () => {
  const paused = heard(after(2), { pauseMs: 500 }, at(10));
  expect(waitMs(paused, 10)).toBe(500);
  const again = heard(called(paused), "dead", at(510, true));
  expect(waitMs(again, 510)).toBe(100);
});

it("makes legal moves only, whatever comes", () => {
  const news = fc.oneof(
    fc.constantFrom<News>("alive", "dead", "unknown"),
    fc.record({ pauseMs: fc.nat(5_000) }),
  );
  const step = fc.record({
    afterMs: fc.nat(300),
    isCall: fc.boolean(),
    news,
    isLate: fc.boolean(),
  });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      let breaker = CLOSED;
      let nowMs = 0;
      let probes = 0; // Calls under way that are to find out.
      for (const { afterMs, isCall, news: told, isLate } of steps) {
        nowMs += afterMs;
        const wait = waitMs(breaker, nowMs);
        if (isCall) {
          if (wait > 0) continue;
          const before = breaker;
          breaker = called(breaker);
          if (breaker !== before) probes += 1;
        } else {
          const isProbe = probes > 0 && !isLate;
          breaker = heard(breaker, told, at(nowMs, isProbe));
          if (isProbe || breaker.state === "closed") probes = 0;
          if (told === "alive") expect(breaker).toBe(CLOSED);
          if (typeof told === "object") probes = 0;
        }
        expect(probes).toBeLessThanOrEqual(1);
        if (breaker.state === "closed") expect(breaker.failures).toBeLessThan(RULES.failuresMax);
        if (breaker.state === "probing") expect(probes).toBe(1);
        if (breaker.state === "open") expect(breaker.untilMs - nowMs).toBeLessThanOrEqual(5_000);
      }
    }),
  );
});
