import { describe, expect, it } from "vitest";
import { judgeChaos, judgeTests, type TestReport } from "./verdict.ts";

describe("a chaos run", () => {
  const VIOLATED = `
seed 1, 20 s
pause-past-lease: work went on after 3 ms

key-order: task 2 ran before task 1
  {"rule": "x"}

slow-recovery: it took too long
replay: npm run chaos -- --seed 1
`;

  it("is green when it ended in peace", () => {
    expect(judgeChaos({ code: 0, stderr: "" }, ["key-order"])).toEqual({ kind: "green" });
  });

  it("is red when a rule was broken that was asked for", () => {
    const verdict = judgeChaos({ code: 1, stderr: VIOLATED }, ["key-overlap", "key-order"]);
    expect(verdict).toEqual({ kind: "red", by: "key-order" });
  });

  it("is green when only others were, and says which", () => {
    expect(judgeChaos({ code: 1, stderr: VIOLATED }, ["lost-task"])).toEqual({
      kind: "green",
      note: "violated only key-order, slow-recovery",
    });
  });

  it.each([
    ["could not run", { code: 2, stderr: "no fault of that kind" }],
    ["was killed", { code: null, stderr: VIOLATED }],
    ["ended by an error before it had checked", { code: 1, stderr: "lost-task: not a rule" }],
  ])("is broken when it %s", (_, ended) => {
    expect(judgeChaos(ended, ["lost-task", "key-order"]).kind).toBe("broken");
  });
});

describe("a test report", () => {
  const report = (
    status: string,
    failureMessages: readonly string[] = [],
    message = "",
  ): TestReport => ({
    testResults: [
      { message, assertionResults: [{ fullName: "other", status: "pending" }] },
      { message: "", assertionResults: [{ fullName: "keeps order", status, failureMessages }] },
    ],
  });

  it("is green when some test ran and none failed", () => {
    expect(judgeTests(report("passed"), "")).toEqual({ kind: "green" });
  });

  it("is red when a test failed, by its name", () => {
    const verdict = judgeTests(report("failed", ["AssertionError: 1 is not 2"]), "");
    expect(verdict).toEqual({ kind: "red", by: "keeps order" });
  });

  it.each([
    ["no test ran", report("pending")],
    ["a file could not be loaded", report("passed", [], "Cannot find module")],
    ["a statement does not parse", report("failed", ['syntax error at or near "AND"'])],
    ["there is none", undefined],
  ])("is broken when %s", (_, given) => {
    expect(judgeTests(given, "the last lines").kind).toBe("broken");
  });
});
