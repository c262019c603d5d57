import { describe, expect, it } from "vitest";
import { check } from "./check.ts";
import { alter, judge, named, remove, type Story, task, tell } from "./story.ts";

describe("a history of tasks is bad when", () => {
  it("a task that was promised is not there", () => {
    const judged = judge(({ truth }) => void remove(truth.tasks, named("plain-1")));
    expect(judged).toEqual({ rules: ["lost-task"], counts: { lost: 1 } });
  });

  it("a task has another id than its producer was told", () => {
    const judged = judge(({ truth }) => alter(truth.tasks, named("plain-1"), { id: "99" }));
    expect(judged).toEqual({ rules: ["lost-task"], counts: { lost: 1 } });
  });

  it("a task is there that nobody enqueued", () => {
    const judged = judge(({ truth }) => void truth.tasks.push(task("20", "stranger")));
    expect(judged).toEqual({ rules: ["unexpected-task"], counts: {} });
  });

  it("a task is there though its producer was told that it is not", () => {
    const judged = judge(({ truth }) => void truth.tasks.push(task("20", "refused-1")));
    expect(judged).toEqual({ rules: ["unexpected-task"], counts: {} });
  });

  it("a part of a call of unknown outcome is there", () => {
    const judged = judge(({ truth }) => void remove(truth.tasks, named("maybe-2")));
    expect(judged).toEqual({ rules: ["torn-enqueue"], counts: {} });
  });

  it("one name became two tasks", () => {
    const judged = judge(({ truth }) => void truth.tasks.push(task("20", "plain-1")));
    expect(judged).toEqual({ rules: ["doubled-enqueue"], counts: { doubled: 1 } });
  });

  it("a task ended twice", () => {
    const judged = judge(({ truth }) => void truth.tasks.push(task("1", "plain-1")));
    expect(judged).toEqual({ rules: ["doubled-end"], counts: { doubled: 1 } });
  });

  it("a task ended and waits all the same", () => {
    const judged = judge(({ truth }) => {
      truth.tasks.push(task("1", "plain-1", { state: "pending" }));
    });
    expect(judged).toEqual({
      rules: ["doubled-end", "stuck-task"],
      counts: { doubled: 1, stuck: 1 },
    });
  });

  it.each(["pending", "scheduled", "running"] as const)("a task is %s at the end", (state) => {
    const judged = judge(({ truth }) => alter(truth.tasks, named("plain-2"), { state }));
    expect(judged).toEqual({ rules: ["stuck-task"], counts: { stuck: 1 } });
  });

  it("a tick's task waits at the end", () => {
    const judged = judge(({ truth }) => {
      alter(truth.tasks, ({ id }) => id === "12", { state: "pending" });
    });
    expect(judged).toEqual({ rules: ["stuck-task"], counts: { stuck: 1 } });
  });
});

describe("a task that is stuck", () => {
  const messagesOf = ({ entries, truth }: Story): string[] =>
    check(entries, truth).violations.map(({ message }) => message);

  it("is named as one that nobody took when its lease has ended", () => {
    const story = tell();
    alter(story.truth.tasks, named("plain-2"), { state: "running", leaseUntilMs: 19_500 });
    expect(messagesOf(story)).toEqual([
      "task 2 (plain-2) of plain runs though its lease ended 500 ms ago, and nobody took it",
    ]);
  });

  it("is named as one that runs while its lease holds", () => {
    const story = tell();
    alter(story.truth.tasks, named("plain-2"), { state: "running", leaseUntilMs: 20_001 });
    expect(messagesOf(story)).toEqual(["task 2 (plain-2) of plain still runs"]);
  });
});
