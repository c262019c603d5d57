import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { Refresh } from "./refresh.ts";

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

it("acts at once, then at most once in a while, and never forgets the last change", () => {
  const act = vi.fn();
  const refresh = new Refresh(act, 1_000);
  refresh.ask();
  expect(act).toHaveBeenCalledTimes(1);
  for (let count = 0; count < 50; count += 1) refresh.ask();
  vi.advanceTimersByTime(999);
  expect(act).toHaveBeenCalledTimes(1);
  vi.advanceTimersByTime(1);
  expect(act).toHaveBeenCalledTimes(2);
  vi.advanceTimersByTime(5_000);
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
