import { describe, expect, it } from "vitest";
import type { HandledFact } from "../../src/checker/truth.ts";
import { alter, handled, judge, line, remove } from "./story.ts";

const at =
  (consumer: string, position: string) =>
  (fact: HandledFact): boolean =>
    fact.consumer === consumer && fact.position === position;

describe("a history of consumers is bad when", () => {
  it("an event was not handled", () => {
    const judged = judge(({ truth }) => void remove(truth.handled, at("whole", "4")));
    expect(judged).toEqual({ rules: ["skipped-event"], counts: { skipped: 1 } });
  });

  it("a consumer handled nothing at all", () => {
    const judged = judge(({ truth }) => {
      truth.handled = truth.handled.filter(({ consumer }) => consumer !== "split");
    });
    expect(judged).toEqual({ rules: ["skipped-event", "unwitnessed"], counts: { skipped: 5 } });
  });

  it("an event was handled twice", () => {
    const judged = judge(({ truth }) => void truth.handled.push(handled(16, "whole", 0, 2)));
    expect(judged).toEqual({ rules: ["repeated-event"], counts: { repeated: 1 } });
  });

  it("two partitions handled the same event", () => {
    const judged = judge(({ truth }) => void truth.handled.push(handled(16, "split", 2, 1)));
    expect(judged).toEqual({ rules: ["repeated-event"], counts: { repeated: 1 } });
  });

  it("a partition handled an event after a later one", () => {
    const judged = judge(({ truth }) => alter(truth.handled, at("split", "4"), { seq: "16" }));
    expect(judged).toEqual({ rules: ["reordered-event"], counts: { reordered: 1 } });
  });

  it("a stream that was set aside was handled out of order", () => {
    const judged = judge(({ truth }) => alter(truth.handled, at("careful", "2"), { seq: "16" }));
    expect(judged).toEqual({ rules: ["reordered-event"], counts: { reordered: 1 } });
  });

  it("an event was handled that is not there", () => {
    const judged = judge(({ truth }) => void truth.handled.push(handled(16, "whole", 0, 7)));
    expect(judged).toEqual({ rules: ["imagined-event"], counts: {} });
  });

  it("more events are in a gap than when it was crossed", () => {
    const judged = judge(({ truth }) => {
      truth.gaps = [{ from: "3", to: "7", missing: "3" }];
    });
    expect(judged).toEqual({ rules: ["filled-gap"], counts: { skipped: 1 } });
  });

  it("an event appeared behind those who crossed its gap", () => {
    const judged = judge(({ entries, truth }) => {
      const call = { op: "append", phase: "ok", names: ["late-1"], positions: ["3"] } as const;
      entries.push(line("producer-1", 1_100, call));
      truth.events.push({ position: "3", name: "late-1" });
    });
    expect(judged).toEqual({ rules: ["skipped-event", "filled-gap"], counts: { skipped: 4 } });
  });

  it("a checkpoint is beyond the end of the log", () => {
    const judged = judge(({ truth }) => {
      alter(truth.checkpoints, ({ consumer }) => consumer === "whole", { position: "8" });
    });
    expect(judged).toEqual({ rules: ["checkpoint-ahead"], counts: {} });
  });

  it("a checkpoint is behind what was handled", () => {
    const judged = judge(({ truth }) => {
      alter(truth.checkpoints, ({ consumer }) => consumer === "whole", { position: "5" });
    });
    expect(judged).toEqual({ rules: ["checkpoint-behind"], counts: {} });
  });

  it("a partition that handled something has no checkpoint", () => {
    const judged = judge(({ truth }) => {
      remove(
        truth.checkpoints,
        ({ consumer, partition }) => consumer === "split" && partition === 1,
      );
    });
    expect(judged).toEqual({ rules: ["checkpoint-behind"], counts: {} });
  });
});
