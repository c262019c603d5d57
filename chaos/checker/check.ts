import { CLUSTER_RULES } from "../../src/checker/cluster.ts";
import { CONSUMER_RULES } from "../../src/checker/consumers.ts";
import { EVENT_RULES } from "../../src/checker/events.ts";
import { gather } from "../../src/checker/facts.ts";
import { FENCE_RULES } from "../../src/checker/fences.ts";
import type { Entry } from "../../src/checker/history.ts";
import { KEY_RULES } from "../../src/checker/keys.ts";
import type { Count, Finding, Rule, RuleName } from "../../src/checker/rule.ts";
import { TASK_RULES } from "../../src/checker/tasks.ts";
import type { Truth } from "../../src/checker/truth.ts";
import { SCENE } from "../scene.ts";
import { CHECKPOINT_RULES } from "./checkpoints.ts";
import { LEADER_WRITE_RULES } from "./leader-writes.ts";
import { PAUSE_RULES } from "./pauses.ts";
import { PROCESS_RULES } from "./processes.ts";
import { QUIET_RULES } from "./quiet.ts";
import { RECOVERY_RULES, type Recovery, recoveriesOf } from "./recovery.ts";
import { SCHEDULE_RULES } from "./schedules.ts";
import { WITNESS_RULES } from "./witness.ts";

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
  ...CHECKPOINT_RULES,
  ...CLUSTER_RULES,
  ...LEADER_WRITE_RULES,
  ...SCHEDULE_RULES,
  ...PROCESS_RULES,
  ...PAUSE_RULES,
  ...RECOVERY_RULES,
  ...QUIET_RULES,
  ...WITNESS_RULES,
];

/** A rule that is broken a million times is understood after a few. */
export const KEPT_MAX = 20;
const SLICE_MAX = 30;

/**
 * Judges a run by what its processes saw and by what the tables say now that it is quiet. Lines of
 * one process must be in their order; how those of several are mixed does not matter.
 */
export function check(entries: readonly Entry[], truth: Truth): Verdict {
  const facts = gather(SCENE, entries, truth);
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
