import { describe, expect, it } from "vitest";
import type { HandledFact, MoveFact } from "../../src/checker/truth.ts";
import { alter, judge, remove, type Story } from "./story.ts";

const BROKEN = { rules: ["checkpoint-chain"], counts: {} };
const STRAY = { rules: ["stray-event"], counts: {} };

const isMove =
  (consumer: string, to: string) =>
  (move: MoveFact): boolean =>
    move.consumer === consumer && move.partition === 0 && move.to === to;

const handleIn = ({ truth }: Story, consumer: string, xid: string): void =>
  alter(truth.handled, (fact: HandledFact) => fact.consumer === consumer && fact.position === "4", {
    xid,
  });

describe("a history of checkpoints is bad when", () => {
  it("a batch left out positions behind the one before", () => {
    expect(judge(({ truth }) => alter(truth.moves, isMove("whole", "4"), { from: "3" }))).toEqual(
      BROKEN,
    );
  });

  it("a batch began before the end of the one before", () => {
    expect(judge(({ truth }) => alter(truth.moves, isMove("split", "4"), { from: "0" }))).toEqual(
      BROKEN,
    );
  });

  it("the first batch did not begin at the beginning", () => {
    expect(judge(({ truth }) => void remove(truth.moves, isMove("whole", "1")))).toEqual(BROKEN);
  });

  it("a checkpoint went back", () => {
    const judged = judge(({ truth }) => {
      const [last] = truth.moves.filter(isMove("whole", "7"));
      if (last !== undefined) truth.moves.push({ ...last, seq: "99", from: "7", to: "6" });
    });
    expect(judged).toEqual(BROKEN);
  });

  it("an event was handled in another batch than the one that passed it", () => {
    expect(judge((story) => handleIn(story, "whole", "704"))).toEqual(STRAY);
  });

  it("an event was handled outside of all batches", () => {
    expect(judge((story) => handleIn(story, "split", "999"))).toEqual(STRAY);
  });

  it("an event that was not set aside was handled in a later batch", () => {
    expect(judge((story) => handleIn(story, "careful", "713"))).toEqual(STRAY);
  });
});

describe("a history of checkpoints is good when", () => {
  it("an event that was set aside is handled when it is cured", () => {
    expect(judge((story) => handleIn(story, "careful", "999"))).toEqual({ rules: [], counts: {} });
  });
});
