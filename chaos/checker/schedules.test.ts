import { describe, expect, it } from "vitest";
import type { ScheduleFact } from "../../src/checker/truth.ts";
import { alter, DEATH_MS, fault, judge, line, type Story } from "./story.ts";

const change = ({ truth }: Story, more: Partial<ScheduleFact>): void =>
  alter(truth.schedules, () => true, more);

const SILENT = { rules: ["silent-schedule"], counts: {} };

describe("a history of schedules is bad when", () => {
  it("one of them stopped firing", () => {
    // A tick was due at 4,000, a new leader is promised for 5,000 later; a crash was over at 9,000,
    // and may have delayed it until 14,000.
    expect(judge((story) => change(story, { pausedAtMs: 14_001 }))).toEqual(SILENT);
  });

  it("one of them never fired", () => {
    const judged = judge(({ truth }) => {
      truth.schedules.push({ schedule: "another", createdAtMs: 3_000, pausedAtMs: 4_100 });
    });
    expect(judged).toEqual(SILENT);
  });

  it("its first tick never fired", () => {
    expect(judge((story) => change(story, { createdAtMs: -1 }))).toEqual(SILENT);
  });

  it("one of them was left to go on", () => {
    const judged = judge((story) => {
      change(story, { pausedAtMs: null });
      story.truth.atMs = 14_001;
    });
    expect(judged.rules).toContain("silent-schedule");
  });
});

describe("a history of schedules is good when", () => {
  it("the last tick was delayed by a fault", () => {
    expect(judge((story) => change(story, { pausedAtMs: 14_000 }))).toEqual({
      rules: [],
      counts: {},
    });
  });

  it("a leader was taken along by a task before the last tick could fire", () => {
    const judged = judge((story) => {
      change(story, { pausedAtMs: 18_900 });
      const exit = { process: "worker-2", worker: "worker-b", code: 7, signal: null } as const;
      const what = { op: "exit", ...exit, asked: null, stopMs: null, lastLines: [] } as const;
      story.entries.push(line("harness", 13_900, what));
      story.entries.push(line("harness", 9_901, fault("kill", [], DEATH_MS, 300)));
    });
    expect(judged).toEqual({ rules: [], counts: {} });
  });
});
