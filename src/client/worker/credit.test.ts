import { expect, it } from "vitest";
import { type CreditFacts, creditToGive } from "./credit.ts";

const FACTS: CreditFacts = {
  capacity: 64,
  held: 0,
  given: 0,
  step: 32,
  unanswered: 0,
  unansweredMax: 256,
};

it.each<[string, number, Partial<CreditFacts>]>([
  ["all of it at the start", 64, {}],
  ["nothing twice", 0, { given: 64 }],
  ["what came free, once it is worth a message", 32, { held: 32 }],
  ["nothing while little came free", 0, { held: 40 }],
  ["a small capacity at once", 1, { capacity: 1, step: 32 }],
  ["each place at once with a step of 1", 1, { held: 63, step: 1 }],
  ["nothing to a server that does not answer", 0, { unanswered: 256 }],
  ["nothing when more is held than there is room", 0, { held: 70 }],
])("gives %s", (_what, expected, facts) => {
  expect(creditToGive({ ...FACTS, ...facts })).toBe(expected);
});
