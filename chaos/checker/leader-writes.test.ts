import { describe, expect, it } from "vitest";
import { alter, judge, write } from "./story.ts";

describe("a history of what leaders wrote is bad when", () => {
  it("a write did not hold the term", () => {
    const judged = judge(({ truth }) => {
      alter(truth.writes, ({ seq }) => seq === "3", { isHeld: false });
    });
    expect(judged).toEqual({ rules: ["leader-write"], counts: {} });
  });

  it("a write was made while nobody led", () => {
    const judged = judge(({ truth }) => {
      alter(truth.writes, ({ seq }) => seq === "1", { leader: null });
    });
    expect(judged).toEqual({ rules: ["leader-write"], counts: {} });
  });

  it("a write of a term came after one of the next", () => {
    const judged = judge(({ truth }) => {
      alter(truth.writes, ({ seq }) => seq === "4", { term: "10" });
    });
    expect(judged).toEqual({ rules: ["leader-write"], counts: {} });
  });

  it.each(["99", "103"])("buckets got epoch %s, which was there before or is older", (epoch) => {
    const judged = judge(({ truth }) => {
      truth.writes.push(write("5", "12", { keySpace: 1, epoch }));
    });
    expect(judged).toEqual({ rules: ["bucket-epoch"], counts: {} });
  });
});

it("a history of what leaders wrote is good when two key spaces have the same epoch", () => {
  const judged = judge(({ truth }) => {
    truth.writes.push(write("5", "12", { keySpace: 2, epoch: "103" }));
  });
  expect(judged).toEqual({ rules: [], counts: {} });
});
