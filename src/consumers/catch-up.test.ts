import { expect, it } from "vitest";
import { catchUpSeconds } from "./catch-up.ts";

it.each([
  [0, 0, 10, 0],
  [40, 20, 10, 4],
  [40, 20, 0, 2],
  [40, 10, 10, undefined],
  [40, 0, 0, undefined],
])("%i behind at %i a second, while %i are appended: %s", (lag, perSecond, appended, seconds) => {
  expect(catchUpSeconds(lag, perSecond, appended)).toBe(seconds);
});
