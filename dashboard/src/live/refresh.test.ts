import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { Refresh } from "./refresh.ts";

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

it("acts at once, soon again, and never forgets the last change", () => {
  const act = vi.fn();
  const refresh = new Refresh(act, 1_000);
  refresh.ask();
  expect(act).toHaveBeenCalledTimes(1);
  for (let count = 0; count < 50; count += 1) refresh.ask();
  vi.advanceTimersByTime(249);
  expect(act).toHaveBeenCalledTimes(1);
  vi.advanceTimersByTime(1);
  expect(act).toHaveBeenCalledTimes(2);
  vi.advanceTimersByTime(5_000);
  expect(act).toHaveBeenCalledTimes(2);
});

it("slows down while changes go on, and is quick again after a rest", () => {
  const act = vi.fn();
  const refresh = new Refresh(act, 1_000);
  const change = (seconds: number): void => {
    for (let count = 0; count < seconds * 10; count += 1) {
      refresh.ask();
      vi.advanceTimersByTime(100);
    }
  };
  change(2);
  act.mockClear();
  change(10);
  expect(act.mock.calls.length).toBeLessThanOrEqual(11);
  expect(act.mock.calls.length).toBeGreaterThanOrEqual(9);
  vi.advanceTimersByTime(3_000);
  act.mockClear();
  refresh.ask();
  expect(act).toHaveBeenCalledTimes(1);
});

it("waits for one that is under way, rests, and does it once more", async () => {
  const ends: (() => void)[] = [];
  const act = vi.fn(() => new Promise<void>((resolve) => ends.push(resolve)));
  const refresh = new Refresh(act, 1_000);
  for (let count = 0; count < 50; count += 1) {
    refresh.ask();
    await vi.advanceTimersByTimeAsync(100);
  }
  expect(act).toHaveBeenCalledTimes(1);
  ends[0]?.();
  await vi.advanceTimersByTimeAsync(249);
  expect(act).toHaveBeenCalledTimes(1);
  await vi.advanceTimersByTimeAsync(1);
  expect(act).toHaveBeenCalledTimes(2);
  ends[1]?.();
  await vi.advanceTimersByTimeAsync(5_000);
  expect(act).toHaveBeenCalledTimes(2);
});

it("does nothing more once it was cancelled", () => {
  const act = vi.fn();
  const refresh = new Refresh(act, 1_000);
  refresh.ask();
  refresh.ask();
  refresh.cancel();
  vi.advanceTimersByTime(5_000);
  expect(act).toHaveBeenCalledTimes(1);
});
