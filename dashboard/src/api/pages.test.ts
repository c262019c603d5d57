import { expect, it } from "vitest";
import { isCut, nextUpTo } from "./pages.ts";

const MORE = { cursor: "behind" };
const LAST = {};

it("goes on until there is nothing more, or enough", () => {
  const next = nextUpTo(2);
  expect(next(MORE, [MORE])).toBe("behind");
  expect(next(LAST, [LAST])).toBeUndefined();
  expect(next(MORE, [MORE, MORE])).toBeUndefined();
});

it("tells the end from enough", () => {
  expect(isCut([MORE, MORE], 2)).toBe(true);
  expect(isCut([MORE, LAST], 2)).toBe(false);
  expect(isCut([MORE], 2)).toBe(false);
  expect(isCut(undefined, 2)).toBe(false);
});
