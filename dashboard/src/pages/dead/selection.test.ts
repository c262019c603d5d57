import { expect, it } from "vitest";
import type { DeadGroup } from "../../api/types.ts";
import { keyOf, whichOf } from "./selection.ts";

const group = (reason: string, ids: readonly string[]): DeadGroup => ({
  queue: "payments",
  cause: "attempts_exhausted",
  reason,
  count: ids.length,
  firstAt: "2026-01-31T09:00:00Z",
  lastAt: "2026-01-31T09:00:00Z",
  ids,
});
const BANK = group("the bank does not answer", ["1", "2"]);
const CARD = group("the card is void", ["3"]);
const FILTER = { queue: "payments" };

it("is all that the filter lets through while nothing is selected", () => {
  expect(whichOf([BANK, CARD], new Set(), FILTER)).toEqual({ filter: FILTER });
});

it("is what was selected, as far as it is still there", () => {
  const both = new Set([keyOf(BANK), keyOf(CARD)]);
  expect(whichOf([BANK, CARD], both, FILTER)).toEqual({ ids: ["1", "2", "3"] });
  expect(whichOf([CARD], both, FILTER)).toEqual({ ids: ["3"] });
});

it("is nothing, and never all, when what was selected is gone", () => {
  expect(whichOf([CARD], new Set([keyOf(BANK)]), FILTER)).toBeUndefined();
});
