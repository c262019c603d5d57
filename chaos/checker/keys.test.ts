import { describe, expect, it } from "vitest";
import { orders } from "../scene.ts";
import { alter, effect, judge, line, named, order, type Story, token } from "./story.ts";

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
