import { describe, expect, it } from "vitest";
import { CRASHES } from "../../src/checker/fences.ts";
import type { Entry } from "../../src/checker/history.ts";
import { FAULTS } from "../faults/index.ts";
import { flaky, plain } from "../scene.ts";
import {
  alter,
  begun,
  CRASH_MS,
  effect,
  end,
  fault,
  judge,
  line,
  named,
  remove,
  start,
  token,
} from "./story.ts";

const isFault = ({ what }: Entry, kind: string): boolean =>
  what.op === "fault" && what.fault.kind === kind;

describe("a history of claims is bad when", () => {
  it("an effect is of another claim than the one that completed the task", () => {
    const judged = judge(({ truth }) => {
      alter(truth.effects, named("order-1"), { claimId: "claim-of-a-zombie" });
    });
    expect(judged).toEqual({ rules: ["foreign-effect"], counts: {} });
  });

  it("an effect is of an older generation than the one that completed the task", () => {
    const judged = judge(({ truth }) => {
      alter(truth.effects, named("order-2"), { generation: 1 });
    });
    expect(judged).toEqual({ rules: ["foreign-effect"], counts: {} });
  });

  it("a task left an effect and died", () => {
    const judged = judge(({ truth }) => alter(truth.tasks, named("order-4"), { state: "dead" }));
    expect(judged).toEqual({ rules: ["foreign-effect"], counts: {} });
  });

  it("a task left an effect and still waits", () => {
    const judged = judge(({ truth }) => {
      alter(truth.tasks, named("order-4"), { state: "pending" });
    });
    expect(judged).toEqual({ rules: ["stuck-task", "foreign-effect"], counts: { stuck: 1 } });
  });

  it("a task has two effects", () => {
    const judged = judge(({ truth }) => {
      const again = truth.tasks.filter(named("order-4")).map((one) => effect(one, 9_520, 9_530));
      truth.effects.push(...again);
    });
    expect(judged).toEqual({ rules: ["doubled-effect"], counts: { doubled: 1 } });
  });

  it("an order is completed without its effect", () => {
    const judged = judge(({ truth }) => void remove(truth.effects, named("order-4")));
    expect(judged).toEqual({ rules: ["missing-effect"], counts: { lost: 1 } });
  });

  it("a task was claimed again after its completion", () => {
    const judged = judge(({ entries }) => {
      entries.push(line("worker-2", 1_300, start(token("3", 2, "claim-3-again"))));
    });
    expect(judged).toEqual({ rules: ["late-start"], counts: {} });
  });

  it("a dead task was claimed again", () => {
    const judged = judge(({ entries }) => {
      entries.push(line("worker-2", 1_300, start(token("9", 4, "claim-9-again"))));
    });
    expect(judged).toEqual({ rules: ["late-start"], counts: {} });
  });

  it("one generation was handed out twice before any crash", () => {
    const judged = judge(({ entries }) => {
      entries.push(line("worker-2", 1_125, start(token("5", 1, "claim-5-again"))));
    });
    expect(judged).toEqual({ rules: ["shared-generation"], counts: {} });
  });

  it("one generation was handed out twice longer than a lease after a crash", () => {
    const judged = judge(({ entries }) => {
      const again = [token("9", 1, "claim-9"), token("9", 1, "claim-9-again")] as const;
      entries.push(line("worker-2", 12_001, begun(flaky.name, 12_001, again[0])));
      entries.push(line("worker-3", 12_100, begun(flaky.name, 12_100, again[1])));
    });
    expect(judged).toEqual({ rules: ["shared-generation"], counts: {} });
  });

  it("one generation was handed out twice, and the tables know both", () => {
    const judged = judge(({ truth }) => {
      truth.claims.push({ task: "6", generation: 1, claimId: "claim-6", atMs: 7_980 });
    });
    expect(judged).toEqual({ rules: ["shared-generation"], counts: {} });
  });

  it("one generation was handed out again before a crash could take it back", () => {
    const judged = judge(({ truth }) => {
      alter(truth.claims, ({ task }) => task === "6", { atMs: 7_995 });
    });
    expect(judged).toEqual({ rules: ["shared-generation"], counts: {} });
  });

  it("a task of a pack was begun under two claims of its generation", () => {
    const judged = judge(({ entries }) => {
      entries.push(line("worker-2", 1_060, begun(plain.name, 1_065, token("1", 1, "claim-x"))));
    });
    expect(judged).toEqual({ rules: ["shared-generation"], counts: {} });
  });

  it("one claim began a task of a pack twice", () => {
    const judged = judge(({ entries }) => {
      entries.push(line("worker-2", 1_060, begun(plain.name, 1_065, token("1", 1, "claim-1"))));
    });
    expect(judged).toEqual({ rules: ["doubled-start"], counts: {} });
  });

  it("a task was begun again after it had ended", () => {
    const judged = judge(({ entries }) => {
      entries.push(line("worker-2", 1_060, begun(plain.name, 1_065, token("1", 2, "claim-x"))));
    });
    expect(judged).toEqual({ rules: ["late-start"], counts: {} });
  });

  it("one generation was handed out twice around a stop that takes nothing back", () => {
    const judged = judge(({ entries }) => {
      const { what } = line("harness", 9_900, fault("stop-server", ["the server"], CRASH_MS, 900));
      alter(entries, (entry) => isFault(entry, "crash-server"), { what });
    });
    expect(judged).toEqual({ rules: ["shared-generation"], counts: {} });
  });

  it("one claim started a task twice", () => {
    const judged = judge(({ entries }) => {
      entries.push(line("worker-1", 1_115, start(token("3", 1, "claim-3"))));
    });
    expect(judged).toEqual({ rules: ["doubled-start"], counts: {} });
  });

  it("a task was given up while its lease lasted", () => {
    const judged = judge(({ truth }) => {
      alter(truth.cuts, ({ task }) => task === "9", { task: "4", atMs: 5_000 });
    });
    expect(judged).toEqual({ rules: ["cut-lease"], counts: {} });
  });

  it("a task went to another claim while its lease lasted", () => {
    const judged = judge(({ truth }) => {
      alter(truth.cuts, ({ task }) => task === "9", { nextClaimId: "claim-9-again" });
    });
    expect(judged).toEqual({ rules: ["cut-lease"], counts: {} });
  });

  it("a claim was told that it committed and another one completed the task", () => {
    const judged = judge(({ entries }) => {
      entries.push(line("worker-2", 9_100, end(token("6", 1, "claim-6"), "committed")));
    });
    expect(judged).toEqual({ rules: ["unkept-commit"], counts: { lost: 1 } });
  });

  it("a claim was told that it committed and the task failed", () => {
    const judged = judge(({ truth, entries }) => {
      alter(truth.tasks, named("flaky-1"), { state: "failed" });
      entries.push(line("worker-2", 1_300, end(token("9", 3, "claim-9"), "committed")));
    });
    expect(judged).toEqual({ rules: ["unkept-commit"], counts: { lost: 1 } });
  });
});

describe("a crash of the server", () => {
  it("is a fault that the harness knows", () => {
    expect(FAULTS.map(({ kind }) => kind)).toEqual(expect.arrayContaining([...CRASHES]));
  });

  it.each(CRASHES)("%s may take a claim back", (kind) => {
    const judged = judge(({ entries }) => {
      const { what } = line("harness", 9_900, fault(kind, ["the server"], CRASH_MS, 900));
      alter(entries, (entry) => isFault(entry, "crash-server"), { what });
    });
    expect(judged).toEqual({ rules: [], counts: {} });
  });

  it("may hand out a generation again, whatever the clocks of the processes say", () => {
    const judged = judge(({ entries }) => {
      for (const entry of entries.filter(({ what }) => what.op === "start")) {
        alter(entries, (one) => one === entry, { t: entry.t - 45_000 });
      }
    });
    expect(judged).toEqual({ rules: [], counts: {} });
  });

  it("may hand out a generation again to who starts after the one that lost it", () => {
    const judged = judge(({ entries }) => {
      // It started what it had claimed before the crash a moment before its lease ended.
      const isLoser = ({ what }: Entry): boolean =>
        what.op === "start" && what.task.claimId === "claim-6";
      alter(entries, isLoser, { t: 10_400 });
    });
    expect(judged).toEqual({ rules: [], counts: {} });
  });
});
