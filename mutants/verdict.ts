import type { RuleName } from "../src/checker/rule.ts";

/**
 * What one run of a catcher said. Red: a promise was broken, and which. Green: none was, or none of
 * those that were asked for. Broken: it could not run, which tells nothing of the mutant.
 */
export type Verdict =
  | { readonly kind: "green"; readonly note?: string }
  | { readonly kind: "red"; readonly by: string }
  | { readonly kind: "broken"; readonly why: string };

/** How a process ended. */
export interface Ended {
  /** Null: it was killed. */
  readonly code: number | null;
  readonly stderr: string;
}

const LINES_KEPT = 15;
export const lastLines = (text: string): string =>
  text.trimEnd().split("\n").slice(-LINES_KEPT).join("\n");

/** Each violation is behind an empty line, and only who has checked says how to replay it. */
const VIOLATION = /\n\n([a-z]+(?:-[a-z]+)+): /g;
const HAS_CHECKED = /^replay: /m;

/** Other rules may fail for other reasons: a busy machine recovers late. */
export function judgeChaos({ code, stderr }: Ended, rules: readonly RuleName[]): Verdict {
  if (code === 0) return { kind: "green" };
  if (code !== 1 || !HAS_CHECKED.test(stderr)) return { kind: "broken", why: lastLines(stderr) };
  const violated = new Set(Array.from(stderr.matchAll(VIOLATION), ([, rule]) => rule));
  const expected = rules.find((rule) => violated.has(rule));
  if (expected !== undefined) return { kind: "red", by: expected };
  return { kind: "green", note: `violated only ${[...violated].join(", ")}` };
}

/** As much of vitest's JSON report as is needed. */
export interface TestReport {
  readonly testResults: readonly {
    /** What kept the file from being loaded, if anything did. */
    readonly message?: string;
    readonly assertionResults: readonly {
      readonly fullName: string;
      readonly status: string;
      readonly failureMessages?: readonly string[] | null;
    }[];
  }[];
}

/** A program that does not compile, or a statement that does not parse, breaks no promise. */
const NO_PROGRAM = new RegExp(
  [
    "syntax error at or near",
    "could not determine data type",
    "(column|relation|function) .* does not exist",
    "is not defined",
    "Transform failed",
  ].join("|"),
);

export function judgeTests(report: TestReport | undefined, output: string): Verdict {
  if (report === undefined) return { kind: "broken", why: lastLines(output) };
  const tests = report.testResults.flatMap(({ assertionResults }) => assertionResults);
  const failed = tests.find(({ status }) => status === "failed");
  if (failed !== undefined) {
    const messages = (failed.failureMessages ?? []).join("\n");
    const why = NO_PROGRAM.exec(messages);
    if (why === null) return { kind: "red", by: failed.fullName };
    return { kind: "broken", why: messages.slice(0, 1_000) };
  }
  const unloaded = report.testResults.find((file) => file.message);
  if (unloaded?.message) return { kind: "broken", why: lastLines(unloaded.message) };
  if (tests.some(({ status }) => status === "passed")) return { kind: "green" };
  return { kind: "broken", why: "no test ran" };
}
