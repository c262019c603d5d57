import { expect, it } from "vitest";
import type { Failure, Task } from "../../api/types.ts";
import { timelineOf } from "./timeline-steps.ts";

const TASK: Task = {
  id: "1",
  state: "running",
  queue: "mails",
  tenant: "acme",
  priority: 5,
  contentType: "application/json",
  attempt: 2,
  maxAttempts: 3,
  generation: 2,
  createdAt: "2026-01-31T09:00:00Z",
  runAt: "2026-01-31T09:00:00Z",
  claimedAt: "2026-01-31T09:00:10Z",
  workerId: "w2",
};
const FAILURE: Failure = {
  at: "2026-01-31T09:00:05Z",
  attempt: 1,
  outcome: "failed",
  reason: "no route to host",
  workerId: "w1",
};
const said = (task: Partial<Task>, failures: readonly Failure[] = []): string[] =>
  timelineOf({ ...TASK, ...task }, failures).map(({ what }) => what);

it("tells from the first day to the last, in order", () => {
  expect(said({}, [FAILURE])).toEqual([
    "Enqueued into mails",
    "Attempt 1 failed on w1",
    "Claimed by w2",
  ]);
  const finishedAt = "2026-01-31T09:00:12Z";
  expect(said({ state: "completed", finishedAt }, [FAILURE]).at(-1)).toBe("Completed");
});

it("says a reason once", () => {
  const finishedAt = "2026-01-31T09:00:05Z";
  const cause = "attempts_exhausted";
  const reason = FAILURE.reason;
  const dead: Partial<Task> = { state: "dead", attempt: 1, reason, cause, finishedAt };
  const steps = timelineOf({ ...TASK, ...dead, claimedAt: "2026-01-31T09:00:01Z" }, [FAILURE]);
  expect(steps.filter(({ detail }) => detail === FAILURE.reason)).toHaveLength(1);
  expect(steps.at(-1)?.what).toBe("Died: out of attempts");
});

it("does not call the claim of an attempt that failed the last word", () => {
  const claimedAt = "2026-01-31T09:00:01Z";
  expect(said({ state: "scheduled", attempt: 1, claimedAt }, [FAILURE])).toEqual([
    "Enqueued into mails",
    "Attempt 1 failed on w1",
  ]);
});

it("tells the claim of a task that was redriven, whose attempts begin at one again", () => {
  const finishedAt = "2026-01-31T09:00:12Z";
  expect(said({ state: "completed", attempt: 1, generation: 2, finishedAt }, [FAILURE])).toEqual([
    "Enqueued into mails",
    "Attempt 1 failed on w1",
    "Claimed by w2",
    "Completed",
  ]);
});
