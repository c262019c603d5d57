import { describe, expect, it } from "vitest";
import type { RuleName } from "../../src/checker/rule.ts";
import type { LeftoverFact } from "../../src/checker/truth.ts";
import { judge } from "./story.ts";

describe("a history is bad when, after all was quiet,", () => {
  it.each<[LeftoverFact["kind"], RuleName]>([
    ["bucket", "orphan"],
    ["consumer", "orphan"],
    ["hold", "leftover"],
    ["grant", "leftover"],
    ["claim", "leftover"],
    ["prepared transaction", "leftover"],
    ["session", "leaked-session"],
  ])("a %s is left", (kind, rule) => {
    const judged = judge(({ truth }) => {
      truth.leftovers.push({ kind, what: `a ${kind}` });
    });
    expect(judged).toEqual({ rules: [rule], counts: {} });
  });
});
