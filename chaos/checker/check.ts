import type { Entry } from "../history.ts";
import type { Truth } from "../truth.ts";
import { CLUSTER_RULES } from "./cluster.ts";
import { CONSUMER_RULES } from "./consumers.ts";
import { EVENT_RULES } from "./events.ts";
import { gather } from "./facts.ts";
import { FENCE_RULES } from "./fences.ts";
import { KEY_RULES } from "./keys.ts";
import { RECOVERY_RULES, type Recovery, recoveriesOf } from "./recovery.ts";
import type { Count, Finding, Rule, RuleName } from "./rule.ts";
import { TASK_RULES } from "./tasks.ts";

export interface Violation extends Finding {
  readonly rule: RuleName;
}

export type Counts = Readonly<Record<"tasks" | "events" | "faults" | Count, number>>;

export interface Verdict {
  /** The first few of each rule. */
  readonly violations: readonly Violation[];
  /** Of what is there, and of all that is wrong with it. */
  readonly counts: Counts;
  readonly recoveries: readonly Recovery[];
}

export const RULES: readonly Rule[] = [
  ...TASK_RULES,
  ...EVENT_RULES,
  ...FENCE_RULES,
  ...KEY_RULES,
  ...CONSUMER_RULES,
  ...CLUSTER_RULES,
  ...RECOVERY_RULES,
];

/** A rule that is broken a million times is understood after a few. */
export const KEPT_MAX = 20;
const SLICE_MAX = 30;

/**
 * Judges a run by what its processes saw and by what the tables say now that it is quiet. Lines of
 * one process must be in their order; how those of several are mixed does not matter.
 */
export function check(entries: readonly Entry[], truth: Truth): Verdict {
  const facts = gather(entries, truth);
  const violations: Violation[] = [];
  const counts: Record<keyof Counts, number> = {
    tasks: truth.tasks.length - facts.spareTasks.length,
    events: truth.events.length,
    faults: facts.faults.length,
    lost: 0,
    doubled: 0,
    reordered: 0,
    skipped: 0,
    repeated: 0,
    stuck: 0,
  };
  for (const rule of RULES) {
    let found = 0;
    for (const { message, slice } of rule.find(facts)) {
      found += 1;
      if (found > KEPT_MAX) continue;
      const around = [...new Set(slice)].slice(0, SLICE_MAX);
      violations.push({ rule: rule.name, message, slice: around });
    }
    if (rule.count !== null) counts[rule.count] += found;
  }
  return { violations, counts, recoveries: recoveriesOf(facts) };
}
