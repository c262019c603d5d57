import { compareNumbers, type Facts } from "./facts.ts";
import type { Finding, Rule } from "./rule.ts";
import type { CheckpointFact, HandledFact } from "./truth.ts";

function* skipped({ truth, readings }: Facts): Generator<Finding> {
  for (const { consumer, handles, byPosition } of readings) {
    const checkpoints = truth.checkpoints.filter((one) => one.consumer === consumer);
    for (const event of truth.events) {
      if (byPosition.first.has(event.position) || !handles(event)) continue;
      const message = `consumer ${consumer} never handled the event at ${event.position}`;
      yield { message, slice: [event, ...checkpoints] };
    }
  }
}

function* repeated({ readings }: Facts): Generator<Finding> {
  for (const { consumer, byPosition } of readings) {
    for (const fact of byPosition.again) {
      const message = `consumer ${consumer} handled the event at ${fact.position} again`;
      yield { message, slice: [byPosition.first.get(fact.position), fact] };
    }
  }
}

/** What was handled and does not exist: a crash took the event back, but not its handling. */
function* imagined({ positions, readings }: Facts): Generator<Finding> {
  const known = new Set(positions);
  for (const { consumer, byPosition } of readings) {
    for (const [position, fact] of byPosition.first) {
      if (known.has(position)) continue;
      const message = `consumer ${consumer} handled ${position}, where there is no event`;
      yield { message, slice: [fact] };
    }
  }
}

/** Order is promised within a line. What is handled again is a repetition, not a new order. */
function* reordered({ readings }: Facts): Generator<Finding> {
  for (const { facts, byPosition } of readings) {
    const latest = new Map<string, HandledFact>();
    for (const fact of facts) {
      if (byPosition.first.get(fact.position) !== fact) continue;
      const before = latest.get(fact.line);
      if (before === undefined || compareNumbers(fact.position, before.position) > 0) {
        latest.set(fact.line, fact);
        continue;
      }
      const message = `${partOf(fact)} handled ${fact.position} after ${before.position}`;
      yield { message, slice: [before, fact] };
    }
  }
}

/** How many of the ascending positions are below this one, or at it. */
function countUpTo(positions: readonly string[], position: string): number {
  let low = 0;
  let high = positions.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (compareNumbers(positions[middle] ?? "", position) <= 0) low = middle + 1;
    else high = middle;
  }
  return low;
}

const EXAMPLES = 10;

/** Nothing may appear where a consumer was sure that nothing can. */
function* filledGaps({ truth, positions }: Facts): Generator<Finding> {
  for (const gap of truth.gaps) {
    const before = countUpTo(positions, String(BigInt(gap.from) - 1n));
    const there = countUpTo(positions, gap.to) - before;
    const seen = BigInt(gap.to) - BigInt(gap.from) + 1n - BigInt(gap.missing);
    if (BigInt(there) <= seen) continue;
    const range = `from ${gap.from} to ${gap.to}`;
    const message = `a consumer crossed ${range} with ${seen} events, and now there are ${there}`;
    yield { message, slice: [gap, positions.slice(before, before + Math.min(there, EXAMPLES))] };
  }
}

const later = (a: string, b: string): string => (compareNumbers(a, b) < 0 ? b : a);

const partOf = ({ consumer, partition }: CheckpointFact | HandledFact): string =>
  `partition ${partition} of consumer ${consumer}`;

/** The log may end with positions that were rolled back: crossed, and without an event behind. */
function* checkpointsAhead({ truth, positions }: Facts): Generator<Finding> {
  const newest = positions.at(-1) ?? "0";
  const end = truth.gaps.reduce((reached, { to }) => later(reached, to), newest);
  for (const checkpoint of truth.checkpoints) {
    const { position } = checkpoint;
    if (compareNumbers(position, end) <= 0) continue;
    const message = `${partOf(checkpoint)} is at ${position}, and the log ends at ${end}`;
    yield { message, slice: [checkpoint] };
  }
}

function* checkpointsBehind({ truth, readings }: Facts): Generator<Finding> {
  const checkpoints = new Map(truth.checkpoints.map((one) => [partOf(one), one]));
  for (const { facts } of readings) {
    for (const fact of furthestOf(facts)) {
      const checkpoint = checkpoints.get(partOf(fact));
      const position = checkpoint?.position ?? "0";
      if (compareNumbers(fact.position, position) <= 0) continue;
      const message = `${partOf(fact)} is at ${position}, and handled ${fact.position}`;
      yield { message, slice: checkpoint === undefined ? [fact] : [checkpoint, fact] };
    }
  }
}

/** Of each partition. */
function furthestOf(facts: readonly HandledFact[]): Iterable<HandledFact> {
  const furthest = new Map<number, HandledFact>();
  for (const fact of facts) {
    const before = furthest.get(fact.partition);
    if (before === undefined || compareNumbers(fact.position, before.position) > 0) {
      furthest.set(fact.partition, fact);
    }
  }
  return furthest.values();
}

/** Each event once, in order, whoever owned the partition meanwhile. */
export const CONSUMER_RULES: readonly Rule[] = [
  { name: "skipped-event", count: "skipped", find: skipped },
  { name: "repeated-event", count: "repeated", find: repeated },
  { name: "reordered-event", count: "reordered", find: reordered },
  { name: "imagined-event", count: null, find: imagined },
  { name: "filled-gap", count: "skipped", find: filledGaps },
  { name: "checkpoint-ahead", count: null, find: checkpointsAhead },
  { name: "checkpoint-behind", count: null, find: checkpointsBehind },
];
