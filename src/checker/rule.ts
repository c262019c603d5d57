import type { Facts } from "./facts.ts";

export type RuleName =
  | "lost-task"
  | "unexpected-task"
  | "torn-enqueue"
  | "doubled-enqueue"
  | "doubled-end"
  | "stuck-task"
  | "lost-event"
  | "unexpected-event"
  | "torn-append"
  | "doubled-append"
  | "foreign-effect"
  | "doubled-effect"
  | "missing-effect"
  | "late-start"
  | "shared-generation"
  | "doubled-start"
  | "unkept-commit"
  | "cut-lease"
  | "key-order"
  | "key-overlap"
  | "skipped-event"
  | "repeated-event"
  | "reordered-event"
  | "imagined-event"
  | "filled-gap"
  | "checkpoint-ahead"
  | "checkpoint-behind"
  | "checkpoint-chain"
  | "stray-event"
  | "leader-term"
  | "leader-write"
  | "bucket-epoch"
  | "doubled-tick"
  | "skipped-tick"
  | "early-tick"
  | "silent-schedule"
  | "lost-tick"
  | "exceeded-limit"
  | "crashed-process"
  | "late-stop"
  | "false-loss"
  | "slow-recovery"
  | "late-loss"
  | "late-release"
  | "orphan"
  | "leftover"
  | "leaked-session"
  | "unwitnessed";

/** What a rule found wrong once. */
export interface Finding {
  readonly message: string;
  /** The few history entries and facts around it. */
  readonly slice: readonly unknown[];
}

/** The figures that people ask for first. Not every rule has one. */
export type Count = "lost" | "doubled" | "reordered" | "skipped" | "repeated" | "stuck";

/** One thing that must hold, whatever was broken. */
export interface Rule {
  readonly name: RuleName;
  /** What each finding adds to. */
  readonly count: Count | null;
  /** One after another: a broken run may hold millions, of which a few are kept. */
  find(facts: Facts): Iterable<Finding>;
}
