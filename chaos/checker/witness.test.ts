import { describe, expect, it } from "vitest";
import type { What } from "../../src/checker/history.ts";
import type { RuleName } from "../../src/checker/rule.ts";
import { limited, plain } from "../scene.ts";
import { judge, type Story } from "./story.ts";

type Lists = Exclude<keyof Story["truth"], "atMs">;

const keep = (story: Story, isKept: (what: What) => boolean): void => {
  story.entries = story.entries.filter(({ what }) => isKept(what));
};

describe("a history is bad when nobody saw anything of", () => {
  it.each<Lists>(["terms", "cuts", "schedules", "moves", "gaps"])("%s", (list) => {
    const { rules } = judge(({ truth }) => {
      truth[list].length = 0;
    });
    // An end of the log that nobody crossed is beyond it, too.
    const isToldTwice = (rule: RuleName): boolean => list === "gaps" && rule === "checkpoint-ahead";
    expect(rules.filter((rule) => !isToldTwice(rule))).toEqual(["unwitnessed"]);
  });

  it.each<Lists>(["effects", "firings", "handled"])(
    "%s, and of what must follow from them",
    (list) => {
      const { rules } = judge(({ truth }) => {
        truth[list].length = 0;
      });
      expect(rules).toContain("unwitnessed");
    },
  );

  it("who owns consumers", () => {
    const judged = judge(({ truth }) => {
      truth.writes = truth.writes.filter(({ keySpace }) => keySpace !== null);
    });
    expect(judged).toEqual({ rules: ["unwitnessed"], counts: {} });
  });

  it("who owns buckets", () => {
    const judged = judge(({ truth }) => {
      truth.writes = truth.writes.filter(({ keySpace }) => keySpace === null);
    });
    expect(judged).toEqual({ rules: ["unwitnessed"], counts: {} });
  });

  it("handlers of a queue", () => {
    const judged = judge((story) => {
      keep(story, (what) => what.op !== "begun" || what.queue !== plain.name);
    });
    expect(judged).toEqual({ rules: ["unwitnessed"], counts: {} });
  });

  it("a limit", () => {
    const judged = judge((story) => {
      keep(story, (what) => what.op !== "sample" || what.sample.limited[limited.name] === 0);
    });
    expect(judged).toEqual({ rules: ["unwitnessed"], counts: {} });
  });
});
