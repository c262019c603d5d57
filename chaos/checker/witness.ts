import type { Facts } from "../../src/checker/facts.ts";
import type { Finding, Rule } from "../../src/checker/rule.ts";
import type { LeaderWriteFact } from "../../src/checker/truth.ts";

/*
 * Most rules judge what was seen, so they hold of a run of which nothing was seen. A run with load
 * has something of everything.
 */

type Witness = readonly [what: string, isSeen: (facts: Facts) => boolean];

const some =
  (list: (facts: Facts) => readonly unknown[]): Witness[1] =>
  (facts) =>
    list(facts).length > 0;

const isOfConsumer = ({ keySpace }: LeaderWriteFact): boolean => keySpace === null;

const WITNESSES: readonly Witness[] = [
  ["an enqueue", some(({ enqueues }) => enqueues)],
  ["an append", some(({ events }) => events.calls)],
  ["an effect", some(({ truth }) => truth.effects)],
  ["a term", some(({ truth }) => truth.terms)],
  ["a write of a consumer's owner", some(({ truth }) => truth.writes.filter(isOfConsumer))],
  [
    "a write of buckets' owners",
    some(({ truth }) => truth.writes.filter((one) => !isOfConsumer(one))),
  ],
  ["a schedule", some(({ truth }) => truth.schedules)],
  ["a firing", some(({ truth }) => truth.firings)],
  ["a claim", some(({ truth }) => truth.claims)],
  ["a claim that ended before its lease", some(({ truth }) => truth.cuts)],
  ["a move of a checkpoint", some(({ truth }) => truth.moves)],
  ["a gap", some(({ truth }) => truth.gaps)],
];

function* missing(facts: Facts): Generator<string> {
  for (const [what, isSeen] of WITNESSES) if (!isSeen(facts)) yield what;
  const { scene, readings, samples, begins } = facts;
  for (const { consumer, facts: handled } of readings) {
    if (handled.length === 0) yield `an event that ${consumer} handled`;
  }
  for (const queue of Object.keys(scene.limits)) {
    const isSeen = samples.some(({ limited }) => (limited[queue] ?? 0) > 0);
    if (!isSeen) yield `a task of ${queue} that ran`;
  }
  for (const queue of scene.begins ?? []) {
    if ((begins.get(queue) ?? 0) === 0) yield `a handler of ${queue} that began`;
  }
}

function* unwitnessed(facts: Facts): Generator<Finding> {
  for (const what of missing(facts)) yield { message: `nobody saw ${what}`, slice: [] };
}

/** There was something to judge. */
export const WITNESS_RULES: readonly Rule[] = [
  { name: "unwitnessed", count: null, find: unwitnessed },
];
