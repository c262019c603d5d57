import { expect, it } from "vitest";
import type { FeedSummary, LiveEvent, TaskChange } from "../../live/events.ts";
import { isAbout, mayMove } from "./about-task.ts";

const summary = (part: Partial<FeedSummary>): LiveEvent => ({
  kind: "summary",
  atMs: 0,
  summary: { at: "", counts: [], retries: 0, isComplete: true, changes: [], ...part },
});
const CHANGE: TaskChange = {
  id: "7",
  queue: "mails",
  tenant: "acme",
  state: "dead",
  attempt: 1,
  at: "2026-01-31T09:00:00Z",
};
const count = (queue: string | null) => ({ queue, state: "completed", count: 1 }) as const;

it("follows one task by its id, as long as all ids are told", () => {
  const told = summary({ changes: [CHANGE], counts: [count("mails")] });
  expect(isAbout(told, "7", "mails")).toBe(true);
  expect(isAbout(told, "8", "mails")).toBe(false);
  for (const queue of ["mails", null]) {
    const cut = summary({ isComplete: false, counts: [count(queue)] });
    expect(isAbout(cut, "8", "mails")).toBe(true);
  }
});

it("follows what the task waits for: its queue, and the workers", () => {
  expect(mayMove(summary({ counts: [count("mails")] }), "mails")).toBe(true);
  expect(mayMove(summary({ counts: [count(null)] }), "mails")).toBe(true);
  expect(mayMove(summary({ counts: [count("others")] }), "mails")).toBe(false);
  expect(mayMove({ kind: "cluster", about: "worker" }, "mails")).toBe(true);
  expect(mayMove({ kind: "cluster", about: "gap" }, "mails")).toBe(false);
});
