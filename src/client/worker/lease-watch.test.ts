import { expect, it } from "vitest";
import { dueOf, LeaseWatch, nextLookMs } from "./lease-watch.ts";

const TASK = {
  state: "running" as "running" | "waiting",
  timeoutAtMs: Infinity,
  trustedUntilMs: 900,
  orphanUntilMs: Infinity,
  renewAtMs: 500,
  isDoubtful: false,
  isRenewing: false,
};

it.each([
  ["nothing while its trust is fresh", undefined, 499, {}, true],
  ["an extension at half of its trust", "renew", 500, {}, true],
  ["no extension when one is on its way", undefined, 600, { isRenewing: true }, true],
  ["no extension when nobody can be asked", undefined, 600, {}, false],
  ["doubt at the end of its trust", "doubt", 900, {}, true],
  ["doubt when it was without a stream for too long", "doubt", 200, { orphanUntilMs: 200 }, false],
  ["no doubt twice", undefined, 5_000, { isDoubtful: true }, true],
  ["a timeout before anything else", "timeout", 1_000, { timeoutAtMs: 1_000 }, true],
  ["a timeout also in doubt", "timeout", 1_000, { timeoutAtMs: 1_000, isDoubtful: true }, true],
  ["no timeout before it started", "renew", 600, { timeoutAtMs: 1, state: "waiting" }, true],
] as const)("there is due %s", (...[, expected, nowMs, facts, canAsk]) => {
  expect(dueOf({ ...TASK, ...facts }, nowMs, canAsk)).toBe(expected);
});

it("is looked at again when the first of these is due", () => {
  expect(nextLookMs(TASK, true)).toBe(500);
  expect(nextLookMs(TASK, false)).toBe(900);
  expect(nextLookMs({ ...TASK, orphanUntilMs: 300 }, false)).toBe(300);
  expect(nextLookMs({ ...TASK, timeoutAtMs: 100 }, true)).toBe(100);
  expect(nextLookMs({ ...TASK, isDoubtful: true }, true)).toBe(Infinity);
});

it("has one timer for all, which moves to the earliest", () => {
  const timers: { ms: number; isOn: boolean; wake: () => void }[] = [];
  const clock = {
    now: () => 0,
    after(ms: number, wake: () => void) {
      const timer = { ms, isOn: true, wake };
      timers.push(timer);
      return () => {
        timer.isOn = false;
      };
    },
  };
  const looks: number[] = [];
  const watch = new LeaseWatch(clock, (nowMs) => {
    looks.push(nowMs);
    return Infinity;
  });
  watch.noLaterThan(1_000);
  watch.noLaterThan(2_000);
  watch.noLaterThan(100);
  expect(timers.filter(({ isOn }) => isOn).map(({ ms }) => ms)).toEqual([100]);
  timers.find(({ isOn }) => isOn)?.wake();
  expect(looks).toEqual([0]);
  watch.noLaterThan(50);
  watch.close();
  expect(timers.filter(({ isOn, ms }) => isOn && ms === 50)).toEqual([]);
});
