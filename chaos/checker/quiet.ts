import type { Facts } from "../../src/checker/facts.ts";
import type { Finding, Rule, RuleName } from "../../src/checker/rule.ts";
import type { LeftoverFact } from "../../src/checker/truth.ts";

/* What must be gone, or belong to somebody who lives, once all is done and had time. */

const rule = (
  name: RuleName,
  kinds: readonly LeftoverFact["kind"][],
  tell: (what: string) => string,
): Rule => ({
  name,
  count: null,
  *find({ truth }: Facts): Generator<Finding> {
    for (const left of truth.leftovers) {
      if (kinds.includes(left.kind)) yield { message: tell(left.what), slice: [left] };
    }
  },
});

/** What is left behind. */
export const QUIET_RULES: readonly Rule[] = [
  rule("orphan", ["bucket", "consumer"], (what) => `${what}, though all is quiet`),
  rule(
    "leftover",
    ["hold", "grant", "claim", "prepared transaction"],
    (what) => `${what} is there, though all is quiet`,
  ),
  rule("leaked-session", ["session"], (what) => `${what} is open, though every process has ended`),
];
