import { describe, expect, it } from "vitest";
import { ATTEMPTS_MAX, pauseSeconds, verdictOf } from "./verdict.ts";

const NOW = new Date("2026-03-01T12:00:00Z");
const at = (attempt: number) => ({ attempt, attemptsMax: 16, now: NOW, random: () => 0.5 });
const answer = (status: number, retryAfter?: string) => ({ status, retryAfter });

describe("verdictOf", () => {
  it.each([200, 201, 204, 299])("%i is a receipt", (status) => {
    expect(verdictOf(answer(status), at(16))).toEqual({ state: "delivered" });
  });

  it.each([100, 199, 300, 301, 400, 401, 404, 429, 500, 503])("%i is tried again", (status) => {
    expect(verdictOf(answer(status), at(1))).toEqual({ state: "pending", delaySeconds: 10 });
  });

  it("410 and what the guard refuses are final, at any attempt", () => {
    expect(verdictOf(answer(410, "60"), at(1))).toEqual({ state: "dead", cause: "gone" });
    expect(verdictOf({ isRefused: true }, at(1))).toEqual({ state: "dead", cause: "refused" });
    expect(verdictOf({ isRefused: false }, at(1))).toMatchObject({ state: "pending" });
  });

  it("the last attempt is the last", () => {
    expect(verdictOf(answer(500), at(15))).toMatchObject({ state: "pending" });
    const dead = { state: "dead", cause: "attempts_exhausted" };
    expect(verdictOf(answer(500), at(16))).toEqual(dead);
    expect(verdictOf({ isRefused: false }, at(17))).toEqual(dead);
  });

  it.each([
    ["60", 60],
    ["5", 10], // Never sooner than we would.
    ["Sun, 01 Mar 2026 12:02:00 GMT", 120],
    ["Sun, 01 Mar 2026 11:00:00 GMT", 10],
    ["999999999", 12 * 3_600],
    ["Fri, 01 Mar 2999 12:00:00 GMT", 12 * 3_600],
    ["-5", 10],
    ["soon", 10],
    ["", 10],
  ])("retry-after %j means a pause of %i s", (retryAfter, delaySeconds) => {
    expect(verdictOf(answer(503, retryAfter), at(1))).toEqual({ state: "pending", delaySeconds });
  });
});

it("pauses double up to four hours, and all attempts take about a day", () => {
  const pauses = Array.from({ length: ATTEMPTS_MAX - 1 }, (_, n) => pauseSeconds(n + 1, () => 0.5));
  expect(pauses.slice(0, 4)).toEqual([10, 20, 40, 80]);
  expect(Math.max(...pauses)).toBe(14_400);
  const hours = pauses.reduce((sum, one) => sum + one, 0) / 3_600;
  expect(hours).toBeGreaterThan(20);
  expect(hours).toBeLessThan(26);
  expect(pauseSeconds(3, () => 0)).toBeCloseTo(32);
  expect(pauseSeconds(3, () => 1)).toBeCloseTo(48);
});
