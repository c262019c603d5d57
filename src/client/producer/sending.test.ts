import { expect, it } from "vitest";
import { PIPELINE, type SendFacts, shouldSend } from "./sending.ts";

const FACTS: SendFacts = {
  queued: 1,
  unanswered: 0,
  unansweredMax: 256,
  batchTasks: 64,
  isFull: false,
};

it.each<[string, boolean, Partial<SendFacts>]>([
  ["at once when nothing is under way", true, {}],
  ["nothing when there is nothing", false, { queued: 0 }],
  ["no part of a batch while enough is under way", false, { queued: 63, unanswered: PIPELINE }],
  ["a full batch while the server takes it", true, { queued: 64, unanswered: 255 }],
  ["no more than the server takes", false, { queued: 500, unanswered: 256 }],
  ["nothing into a full connection", false, { queued: 500, isFull: true }],
])("sends %s", (_what, expected, facts) => {
  expect(shouldSend({ ...FACTS, ...facts })).toBe(expected);
});
