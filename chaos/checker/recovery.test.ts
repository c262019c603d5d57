import { describe, expect, it } from "vitest";
import { FAULTS } from "../faults/index.ts";
import { POISON_CODE } from "../scene.ts";
import { check } from "./check.ts";
import { DEATHS } from "./recovery.ts";
import {
  alter,
  DEAD_WORKER,
  DEATH_MS,
  fault,
  held,
  judge,
  line,
  named,
  type Story,
  tell,
  token,
} from "./story.ts";

const DURING_MS = { from: 12_000, to: 13_000, bound: 1_000 };

const strike = ({ entries }: Story, recoveredMs: number | null): void =>
  void entries.push(line("harness", 15_000, fault("reset", ["worker-b"], DURING_MS, recoveredMs)));

/** The dead worker's task is taken from it at this moment. */
const loseAt = ({ truth }: Story, atMs: number): void =>
  alter(truth.losses, ({ worker }) => worker === DEAD_WORKER, { atMs });

describe("a history of faults is bad when", () => {
  it("nothing moved after one", () => {
    const judged = judge((story) => strike(story, null));
    expect(judged).toEqual({ rules: ["slow-recovery"], counts: {} });
  });

  it("one took longer to get over than it may", () => {
    const judged = judge((story) => strike(story, 1_001));
    expect(judged).toEqual({ rules: ["slow-recovery"], counts: {} });
  });

  it("what a dead worker held was taken from it too late", () => {
    const judged = judge((story) => loseAt(story, 7_001));
    expect(judged).toEqual({ rules: ["late-loss"], counts: {} });
  });

  it("it was taken too late for another fault that began meanwhile as well", () => {
    const judged = judge((story) => {
      const during = { from: 6_500, to: 7_000, bound: 900 };
      story.entries.push(line("harness", 7_100, fault("stop-server", ["it"], during, 100)));
      loseAt(story, 7_901);
    });
    expect(judged).toEqual({ rules: ["late-loss"], counts: {} });
  });
});

/** The second order is taken from its worker at this moment, and then done. */
function freeAt(story: Story, atMs: number): void {
  const { truth } = story;
  loseAt(story, atMs);
  alter(truth.claims, ({ task, generation }) => task === "4" && generation === 2, {
    atMs: atMs + 10,
  });
  alter(truth.tasks, named("order-2"), { finishedAtMs: atMs + 20 });
}

/** A task takes a worker's process along, by itself or when it was told to go. */
function endWorker({ entries }: Story, worker: string, asked: "stop" | null = null): void {
  const how = {
    code: asked === null ? POISON_CODE : 0,
    signal: null,
    asked,
    stopMs: null,
    lastLines: [],
  };
  entries.push(line("harness", 6_000, { op: "exit", process: "worker-9", worker, ...how }));
}

/** A transaction of its handler had the row of the second order locked. */
function lockSecond({ entries }: Story): void {
  const place = entries.findIndex(({ what }) => what.op === "held");
  const { what } = entries[place] ?? {};
  if (what?.op !== "held") throw new Error("nothing was held");
  entries[place] = line("harness", 1_610, { op: "held", held: { ...what.held, locked: ["4"] } });
}

describe("a history of faults is bad for what was held when", () => {
  it("it was taken from its worker too late", () => {
    const judged = judge((story) => freeAt(story, 6_601));
    expect(judged).toEqual({ rules: ["late-release"], counts: {} });
  });

  it("some of it was free in time, and some was not", () => {
    const judged = judge(({ entries, truth }) => {
      entries.push(line("harness", 1_610, held("worker-1", 1_600, token("1", 1, "claim-1"))));
      alter(truth.tasks, named("plain-1"), { finishedAtMs: 6_601 });
    });
    expect(judged).toEqual({ rules: ["late-release"], counts: {} });
  });

  it("it was taken too late for another fault that began meanwhile as well", () => {
    const judged = judge((story) => {
      const during = { from: 6_500, to: 7_000, bound: 900 };
      story.entries.push(line("harness", 7_100, fault("stop-server", ["it"], during, 100)));
      freeAt(story, 7_901);
    });
    expect(judged).toEqual({ rules: ["late-loss", "late-release"], counts: {} });
  });

  it("it was taken too late for a leader that was lost meanwhile as well", () => {
    const judged = judge((story) => {
      endWorker(story, "worker-b");
      freeAt(story, 11_001);
    });
    expect(judged).toEqual({ rules: ["late-loss", "late-release"], counts: {} });
  });

  it.each<[string, string, "stop" | null]>([
    ["who did not lead", "worker-c", null],
    ["who led once", "worker-a", null],
    ["who leads, and was told to go", "worker-b", "stop"],
  ])("it was taken too late beside the end of one %s", (_, worker, asked) => {
    const judged = judge((story) => {
      endWorker(story, worker, asked);
      freeAt(story, 7_001);
    });
    expect(judged).toEqual({ rules: ["late-loss", "late-release"], counts: {} });
  });

  it("its row was locked, and was free too late after the fault had ended", () => {
    const judged = judge((story) => {
      lockSecond(story);
      freeAt(story, DEATH_MS.to + 5_001);
    });
    expect(judged).toEqual({ rules: ["late-loss", "late-release"], counts: {} });
  });

  it("nobody ever claimed it, and it waits", () => {
    const judged = judge(({ entries, truth }) => {
      entries.push(line("harness", 1_610, held("worker-1", 1_600, token("1", 1, "claim-1"))));
      alter(truth.tasks, named("plain-1"), { state: "pending", finishedAtMs: null });
    });
    expect(judged).toEqual({ rules: ["stuck-task", "late-release"], counts: { stuck: 1 } });
  });
});

describe("a history of faults is good for what was held when", () => {
  it("it was taken at the last moment", () => {
    expect(judge((story) => freeAt(story, 6_600))).toEqual({ rules: [], counts: {} });
  });

  it("its row was locked by a transaction that only the end of the fault could end", () => {
    const judged = judge((story) => {
      lockSecond(story);
      freeAt(story, DEATH_MS.to + 5_000);
    });
    expect(judged).toEqual({ rules: [], counts: {} });
  });

  it("the leader that should have taken it was lost meanwhile", () => {
    const judged = judge((story) => {
      endWorker(story, "worker-b");
      freeAt(story, 11_000);
    });
    expect(judged).toEqual({ rules: [], counts: {} });
  });

  it("its own worker gave it back, and it waits for its next attempt", () => {
    const judged = judge((story) => {
      const { truth } = story;
      truth.returns.push({ task: "4", atMs: 6_600 });
      alter(truth.losses, ({ task }) => task === "4", { atMs: 1_000 });
      alter(truth.claims, ({ task, generation }) => task === "4" && generation === 2, {
        atMs: 7_500,
      });
      alter(truth.tasks, named("order-2"), { finishedAtMs: 7_600 });
    });
    expect(judged).toEqual({ rules: [], counts: {} });
  });

  it("it ended in time, though nobody claimed it anew", () => {
    const judged = judge(({ entries, truth }) => {
      entries.push(line("harness", 1_610, held("worker-1", 1_600, token("1", 1, "claim-1"))));
      alter(truth.tasks, named("plain-1"), { finishedAtMs: 6_600 });
    });
    expect(judged).toEqual({ rules: [], counts: {} });
  });
});

describe("a history of faults is good when", () => {
  it("everything moved within the bounds", () => {
    expect(judge((story) => strike(story, 1_000))).toEqual({ rules: [], counts: {} });
  });

  it("another fault kept others from taking what a dead worker held", () => {
    const judged = judge((story) => {
      const during = { from: 6_500, to: 7_000, bound: 900 };
      story.entries.push(line("harness", 7_100, fault("stop-server", ["it"], during, 100)));
      loseAt(story, 7_900);
    });
    expect(judged).toEqual({ rules: [], counts: {} });
  });

  it("a worker that went on after a fault loses a task much later", () => {
    const judged = judge((story) => {
      strike(story, 100);
      story.truth.losses.push({ task: "9", worker: "worker-b", atMs: 19_500 });
    });
    expect(judged).toEqual({ rules: [], counts: {} });
  });
});

const ONCE = { count: 1, rerunMs: null };

describe("recoveries", () => {
  it("are told by kind, with the worst of each", () => {
    const story = tell();
    for (const recoveredMs of [40, 900, 70]) strike(story, recoveredMs);
    expect(check(story.entries, story.truth).recoveries).toEqual([
      { ...ONCE, fault: "kill", worstMs: 3_400, boundMs: 5_000, resumedMs: 300, rerunMs: 4_390 },
      { ...ONCE, fault: "crash-server", worstMs: 900, boundMs: 5_000, resumedMs: 900 },
      { ...ONCE, fault: "reset", count: 3, worstMs: 900, boundMs: 1_000, resumedMs: 900 },
    ]);
  });

  it("have no end when nothing moved again", () => {
    const story = tell();
    for (const recoveredMs of [40, null, 70]) strike(story, recoveredMs);
    const { recoveries } = check(story.entries, story.truth);
    expect(recoveries.at(-1)).toMatchObject({ fault: "reset", count: 3, worstMs: Infinity });
  });

  it("know the faults that end a worker by the names that the harness has for them", () => {
    expect(FAULTS.map(({ kind }) => kind)).toEqual(expect.arrayContaining([...DEATHS]));
  });
});
