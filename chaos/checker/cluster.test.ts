import { describe, expect, it } from "vitest";
import { LIMIT, limited, remoteLimited } from "../scene.ts";
import { alter, judge, line, remove, task } from "./story.ts";

describe("a history of a cluster is bad when", () => {
  it("two leaders had one term", () => {
    const judged = judge(({ truth }) => {
      truth.terms.push({ seq: "13", term: "12", leader: "worker-c", atMs: 21_000 });
    });
    expect(judged).toEqual({ rules: ["leader-term"], counts: {} });
  });

  it("a term is lower than the one before", () => {
    const judged = judge(({ truth }) => {
      truth.terms.push({ seq: "11", term: "9", leader: "worker-c", atMs: 3_000 });
    });
    expect(judged).toEqual({ rules: ["leader-term"], counts: {} });
  });

  it("a tick fired twice", () => {
    const judged = judge(({ truth }) => {
      truth.tasks.push(task("24", "", { queue: "ticks" }));
      truth.firings.push({ schedule: "every-second", tickMs: 2_000, firedAtMs: 2_005, task: "24" });
    });
    expect(judged).toEqual({ rules: ["doubled-tick"], counts: { doubled: 1 } });
  });

  it("ticks between the first and the last did not fire", () => {
    const judged = judge(({ truth }) => {
      alter(truth.firings, ({ task }) => task === "13", { tickMs: 5_000, firedAtMs: 5_000 });
    });
    expect(judged).toEqual({ rules: ["skipped-tick"], counts: { skipped: 2 } });
  });

  it("a tick fired before its moment", () => {
    const judged = judge(({ truth }) => {
      alter(truth.firings, ({ task }) => task === "12", { firedAtMs: 1_999 });
    });
    expect(judged).toEqual({ rules: ["early-tick"], counts: {} });
  });

  it("the task of a tick is not there", () => {
    const judged = judge(({ truth }) => void remove(truth.tasks, ({ id }) => id === "12"));
    expect(judged).toEqual({ rules: ["lost-tick"], counts: { lost: 1 } });
  });

  it.each([limited.name, remoteLimited.name])("more tasks of %s ran at once than may", (queue) => {
    const judged = judge(({ entries }) => {
      const running = { [queue]: LIMIT + 1 };
      const sample = { atMs: 1_100, finished: 0, handled: 0, remote: 0, limited: running };
      entries.push(line("harness", 1_100, { op: "sample", sample }));
    });
    expect(judged).toEqual({ rules: ["exceeded-limit"], counts: {} });
  });
});

describe("a history of a cluster is good when", () => {
  it("two schedules fire at the same moment", () => {
    const judged = judge(({ truth }) => {
      truth.tasks.push(task("24", "", { queue: "ticks" }));
      truth.firings.push({ schedule: "another", tickMs: 2_000, firedAtMs: 2_005, task: "24" });
    });
    expect(judged).toEqual({ rules: [], counts: {} });
  });
});
