import { expect, it } from "vitest";
import { Window } from "./window.ts";

const LIMITS = { tasksMax: 3, bytesMax: 100, waitersMax: 2 };

function waiting(
  window: Window,
  told: string[],
  name: string,
  { bytes = 10, deadlineMs = Infinity } = {},
): boolean {
  const [grant, expire] = [() => told.push(`${name} in`), () => told.push(`${name} late`)];
  return window.wait({ tasks: 1, bytes, deadlineMs, grant, expire });
}

it("takes tasks and bytes up to its limits", () => {
  const window = new Window(LIMITS);
  expect([1, 2, 3, 4].map(() => window.tryTake(1, 10))).toEqual([true, true, true, false]);
  window.release(1, 10);
  expect(window.tryTake(1, 81)).toBe(false);
  expect(window.tryTake(1, 80)).toBe(true);
  expect([window.tasks, window.bytes]).toEqual([3, 100]);
});

it("lets those who wait in by their order, and nobody past them", () => {
  const window = new Window(LIMITS);
  const told: string[] = [];
  window.tryTake(1, 90);
  expect(waiting(window, told, "large", { bytes: 50 })).toBe(true);
  expect(waiting(window, told, "small", { bytes: 5 })).toBe(true);
  expect(window.tryTake(1, 5)).toBe(false);
  expect(told).toEqual([]);
  window.release(1, 90);
  expect(told).toEqual(["large in", "small in"]);
  expect(window.tasks).toBe(2);
});

it("sends those away whose time is up, and refuses more than may wait", () => {
  const window = new Window(LIMITS);
  const told: string[] = [];
  window.tryTake(3, 30);
  expect(waiting(window, told, "a", { deadlineMs: 5 })).toBe(true);
  expect(waiting(window, told, "b", { deadlineMs: 9 })).toBe(true);
  expect(waiting(window, told, "c")).toBe(false);
  window.expire(5);
  expect(told).toEqual(["a late"]);
  window.release(1, 10);
  expect(told).toEqual(["a late", "b in"]);
});

it("lets in alone what is larger than all of it", () => {
  const window = new Window(LIMITS);
  expect(window.tryTake(9, 900)).toBe(true);
  expect(window.tryTake(1, 1)).toBe(false);
});
