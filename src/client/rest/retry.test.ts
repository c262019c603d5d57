import { expect, it } from "vitest";
import { type FailedAttempt, retryWaitMs } from "./retry.ts";

const FAILED: FailedAttempt = { attempt: 1, status: 503, retryAfterMs: 0, isUnsent: false };
const ONCE = { isRepeatable: false };
const RULES = { attemptsMax: 4, isRepeatable: true, random: () => 1 };

it.each<[string, number | undefined, Partial<FailedAttempt>, Partial<typeof RULES>]>([
  ["waits and repeats what may be repeated", 200, {}, {}],
  ["waits longer each time", 800, { attempt: 3 }, {}],
  ["waits as long as the server says", 3_000, { retryAfterMs: 3_000 }, {}],
  ["gives up at some point", undefined, { attempt: 4 }, {}],
  ["repeats nothing whose answer was lost and that is no repetition", undefined, {}, ONCE],
  ["repeats what was not sent", 200, { status: undefined, isUnsent: true }, ONCE],
  ["repeats what was too much", 200, { status: 429 }, ONCE],
  ["repeats nothing that the server refused", undefined, { status: 409 }, {}],
  ["repeats nothing that the server failed at", undefined, { status: 500 }, {}],
  ["repeats what was not answered", 200, { status: undefined }, {}],
])("%s", (_what, expected, failed, rules) => {
  expect(retryWaitMs({ ...FAILED, ...failed }, { ...RULES, ...rules })).toBe(expected);
});
