import { expect, it } from "vitest";
import { depthOf, describeDepths, describeLimits } from "./queue-text.ts";

const QUEUE = {
  name: "mails",
  isPaused: false,
  limits: { concurrency: null, rate: null, keyRate: null },
};

it("says what waits by priority, the highest first", () => {
  const queue = { ...QUEUE, depths: { "-1": 1, "0": 2, "5": 3_000, "8": 0, "9": 4 } };
  expect(describeDepths(queue)).toBe(
    "4 of priority 9, 3,000 of priority 5, 2 of priority 0, 1 on probation",
  );
  expect(depthOf(queue)).toBe(3_007);
  expect(describeDepths(QUEUE)).toBe("");
});

it("says what a queue is limited to", () => {
  expect(describeLimits(QUEUE)).toBe("none");
  const limits = { concurrency: 5, rate: { count: 50, seconds: 10 }, keyRate: null };
  expect(describeLimits({ ...QUEUE, limits })).toBe("5 at once, 50 per 10 s");
});
