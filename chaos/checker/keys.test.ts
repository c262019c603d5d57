import { describe, expect, it } from "vitest";
import type { What } from "../../src/checker/history.ts";
import { lines, orders, remoteLines } from "../scene.ts";
import {
  alter,
  begun,
  effect,
  judge,
  line,
  named,
  order,
  type Story,
  task,
  token,
} from "./story.ts";

/** One more of the first key, whose outcome its producer never learnt. */
function add({ entries, truth }: Story, startedAtMs: number, atMs: number): void {
  const fact = order("20", "order-5", "a", token("20", 1, "claim-20"));
  truth.tasks.push(fact);
  truth.effects.push(effect(fact, startedAtMs, atMs));
  entries.push(
    line("producer-1", 1_050, {
      op: "enqueue",
      phase: "unknown",
      queue: orders.name,
      names: ["order-5"],
      keys: ["a"],
    }),
  );
}

describe("a history of keys is bad when", () => {
  it("the later of two tasks ran first", () => {
    const judged = judge(({ truth }) => {
      alter(truth.effects, named("order-1"), { startedAtMs: 1_120, atMs: 1_130 });
      alter(truth.effects, named("order-3"), { startedAtMs: 1_100, atMs: 1_110 });
    });
    expect(judged).toEqual({ rules: ["key-order"], counts: { reordered: 1 } });
  });

  it("a task of unknown outcome ran before those that were enqueued before it", () => {
    const judged = judge((story) => add(story, 1_112, 1_118));
    expect(judged).toEqual({ rules: ["key-order"], counts: { reordered: 1 } });
  });

  it("a task started before the one ahead of it was done", () => {
    const judged = judge(({ truth }) => {
      alter(truth.effects, named("order-3"), { startedAtMs: 1_105 });
    });
    expect(judged).toEqual({ rules: ["key-overlap"], counts: { reordered: 1 } });
  });
});

/** Two tasks of one key that wrote nothing, and when each was done. */
function addLines(
  { entries, truth }: Story,
  firstMs: number,
  secondMs: number,
  queue: string = lines.name,
): void {
  const names = ["line-1", "line-2"];
  const ids = ["30", "31"];
  const what = { op: "enqueue", phase: "ok", queue, names, ids, keys: ["a", "a"] };
  entries.push(line("producer-1", 1_060, what as What));
  for (const [place, finishedAtMs] of [firstMs, secondMs].entries()) {
    const more = { queue, key: "a", finishedAtMs };
    truth.tasks.push(task(ids[place] ?? "", names[place] ?? "", more));
  }
}

describe("a history of keys whose tasks write nothing", () => {
  it.each([lines.name, remoteLines.name])(
    "is bad when the later of two of %s was done first",
    (queue) => {
      const judged = judge((story) => addLines(story, 1_300, 1_299, queue));
      expect(judged).toEqual({ rules: ["key-order"], counts: { reordered: 1 } });
    },
  );

  it("is good when they were done in their order", () => {
    expect(judge((story) => addLines(story, 1_299, 1_300))).toEqual({ rules: [], counts: {} });
  });
});

describe("a history of keys whose tasks write nothing, two of them done in their order,", () => {
  const begin = ({ entries }: Story, atMs: number | null): void => {
    entries.push(line("worker-9", 1, begun(lines.name, atMs, token("31", 1, "claim-31"))));
  };
  const claim = ({ truth }: Story, worker: string, atMs: number): void => {
    alter(truth.tasks, ({ id }) => id === "30", { worker: "worker-a" });
    alter(truth.tasks, ({ id }) => id === "31", { worker });
    truth.claims.push({ task: "31", generation: 1, claimId: "claim-31", atMs });
  };
  const BAD = { rules: ["key-overlap"], counts: { reordered: 1 } };
  const GOOD = { rules: [], counts: {} };

  it.each<[string, object, (story: Story) => void]>([
    ["bad when the later one began before the other was done", BAD, (one) => begin(one, 1_298)],
    ["good when it began then", GOOD, (one) => begin(one, 1_299)],
    ["good when nobody knows when it began", GOOD, (one) => begin(one, null)],
    ["bad when another worker had claimed it", BAD, (one) => claim(one, "worker-b", 1_298)],
    ["good when another one claimed it then", GOOD, (one) => claim(one, "worker-b", 1_299)],
    ["good when the same worker had claimed it", GOOD, (one) => claim(one, "worker-a", 1_298)],
  ])("is %s", (_, expected, spoil) => {
    const judged = judge((story) => {
      addLines(story, 1_299, 1_400);
      spoil(story);
    });
    expect(judged).toEqual(expected);
  });
});

describe("a history of keys is good when", () => {
  it("a task of unknown outcome ran in its turn", () => {
    expect(judge((story) => add(story, 1_140, 1_150))).toEqual({ rules: [], counts: {} });
  });

  it("two tasks ran in the same millisecond", () => {
    const judged = judge(({ truth }) => {
      alter(truth.effects, named("order-3"), { startedAtMs: 1_110, atMs: 1_110 });
    });
    expect(judged).toEqual({ rules: [], counts: {} });
  });

  it("tasks of two keys ran at once", () => {
    const judged = judge(({ truth }) => {
      alter(truth.effects, named("order-2"), { startedAtMs: 1_095, atMs: 1_105 });
    });
    expect(judged).toEqual({ rules: [], counts: {} });
  });
});
