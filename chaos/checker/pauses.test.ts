import { describe, expect, it } from "vitest";
import { REMOVED_CODE } from "../ending.ts";
import { FAULTS } from "../faults/index.ts";
import { POISON_CODE } from "../scene.ts";
import { SHORT_PAUSES } from "./pauses.ts";
import { fault, type Judgement, judge, line, type Story } from "./story.ts";

const WORKER = "worker-c";
const PAUSE_MS = { from: 10_500, to: 15_000, bound: 1_000 };
const BAD: Judgement = { rules: ["false-loss"], counts: {} };
const GOOD: Judgement = { rules: [], counts: {} };

/** It stands still for a moment, several times, and something else happens. */
function judgePaused(spoil: (story: Story) => void): Judgement {
  return judge((story) => {
    const [kind = ""] = SHORT_PAUSES;
    story.entries.push(line("harness", 15_100, fault(kind, [WORKER], PAUSE_MS, 10)));
    spoil(story);
  });
}

const lose = ({ truth }: Story, atMs: number, worker = WORKER): void =>
  void truth.losses.push({ task: "9", worker, atMs });

function exit({ entries }: Story, atMs: number, code: number): void {
  const how = { code, signal: null, asked: null, stopMs: null, lastLines: [] };
  const what = { op: "exit", process: "worker-7", worker: WORKER, ...how } as const;
  entries.push(line("harness", atMs, what));
}

function block({ entries }: Story, process: string, fromMs: number, toMs: number): void {
  entries.push(line("harness", fromMs, { op: "block", process, fromMs, toMs }));
}

it("a short pause is a fault that the harness knows", () => {
  expect(FAULTS.map(({ kind }) => kind)).toEqual(expect.arrayContaining([...SHORT_PAUSES]));
});

describe("a short pause is bad when", () => {
  it.each([10_500, 15_000, 18_000])("a task is taken from its worker at %i", (atMs) => {
    expect(judgePaused((story) => lose(story, atMs))).toEqual(BAD);
  });

  it("its worker is taken for dead", () => {
    expect(judgePaused((story) => exit(story, 12_000, REMOVED_CODE))).toEqual(BAD);
  });

  it("a task is taken long after another one let go of the process", () => {
    const judged = judgePaused((story) => {
      block(story, "worker-7", 6_000, 10_000);
      exit(story, 30_000, 0);
      lose(story, 11_001);
    });
    expect(judged).toEqual(BAD);
  });

  it("a task is taken while another process is blocked", () => {
    const judged = judgePaused((story) => {
      block(story, "worker-8", 9_000, 13_500);
      exit(story, 30_000, 0);
      lose(story, 13_000);
    });
    expect(judged).toEqual(BAD);
  });
});

describe("a short pause is good when", () => {
  it.each<[string, number, string]>([
    ["before it", 10_499, WORKER],
    ["a lease after it", 18_001, WORKER],
    ["from somebody else", 12_000, "worker-d"],
  ])("a task is taken %s", (_, atMs, worker) => {
    expect(judgePaused((story) => lose(story, atMs, worker))).toEqual(GOOD);
  });

  it("a task is taken when the next fault has begun", () => {
    const judged = judgePaused((story) => {
      const during = { from: 15_500, to: 16_000, bound: 1_000 };
      story.entries.push(line("harness", 16_100, fault("reset", [WORKER], during, 10)));
      lose(story, 15_501);
    });
    expect(judged).toEqual(GOOD);
  });

  it("a task took its process along", () => {
    const judged = judgePaused((story) => {
      exit(story, 11_000, POISON_CODE);
      lose(story, 14_000);
    });
    expect(judged).toEqual(GOOD);
  });

  it("a task blocked its process", () => {
    const judged = judgePaused((story) => {
      block(story, "worker-7", 9_000, 13_500);
      exit(story, 30_000, 0);
      lose(story, 13_900);
    });
    expect(judged).toEqual(GOOD);
  });
});
