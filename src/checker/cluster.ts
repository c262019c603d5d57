import { compareNumbers, type Facts, groupBy } from "./facts.ts";
import type { Finding, Rule } from "./rule.ts";
import type { FiringFact, TermFact } from "./truth.ts";

function* terms({ truth }: Facts): Generator<Finding> {
  let before: TermFact | undefined;
  for (const fact of truth.terms.toSorted((a, b) => compareNumbers(a.seq, b.seq))) {
    if (before === undefined || compareNumbers(fact.term, before.term) > 0) {
      before = fact;
      continue;
    }
    const message = `term ${fact.term} came after term ${before.term}`;
    yield { message, slice: [before, fact] };
  }
}

const tickText = ({ schedule, tickMs }: Pick<FiringFact, "schedule" | "tickMs">): string =>
  `the tick of ${schedule} at ${new Date(tickMs).toISOString()}`;

/** Each firing beside the one before it, by the time of their ticks. */
function* neighbours({ truth }: Facts): Generator<readonly [FiringFact, FiringFact]> {
  for (const firings of groupBy(truth.firings, ({ schedule }) => schedule).values()) {
    firings.sort((a, b) => a.tickMs - b.tickMs);
    let before: FiringFact | undefined;
    for (const firing of firings) {
      if (before !== undefined) yield [before, firing];
      before = firing;
    }
  }
}

function* doubledTicks(facts: Facts): Generator<Finding> {
  for (const [before, firing] of neighbours(facts)) {
    if (before.tickMs !== firing.tickMs) continue;
    yield { message: `${tickText(firing)} fired twice`, slice: [before, firing] };
  }
}

/** Of schedules that catch up all that they missed. */
function* skippedTicks(facts: Facts): Generator<Finding> {
  const { tickMs: everyMs } = facts.scene;
  for (const [before, firing] of neighbours(facts)) {
    for (let tickMs = before.tickMs + everyMs; tickMs < firing.tickMs; tickMs += everyMs) {
      const { schedule } = firing;
      yield { message: `${tickText({ schedule, tickMs })} never fired`, slice: [before, firing] };
    }
  }
}

/** It waits for its moment, whatever the clock of a worker says. */
function* earlyTicks({ truth }: Facts): Generator<Finding> {
  for (const firing of truth.firings) {
    const earlyMs = firing.tickMs - firing.firedAtMs;
    if (earlyMs <= 0) continue;
    yield { message: `${tickText(firing)} fired ${earlyMs} ms too early`, slice: [firing] };
  }
}

function* lostTicks({ truth, lives }: Facts): Generator<Finding> {
  for (const firing of truth.firings) {
    if (lives.get(firing.task)?.task !== undefined) continue;
    const message = `${tickText(firing)} fired, and its task ${firing.task} is not there`;
    yield { message, slice: [firing] };
  }
}

function* exceeded({ scene, samples }: Facts): Generator<Finding> {
  for (const sample of samples) {
    for (const [queue, running] of Object.entries(sample.limited)) {
      const limit = scene.limits[queue] ?? Number.POSITIVE_INFINITY;
      if (running <= limit) continue;
      const message = `${running} tasks of ${queue} ran at once where ${limit} may`;
      yield { message, slice: [sample] };
    }
  }
}

/** What the workers agree on. */
export const CLUSTER_RULES: readonly Rule[] = [
  { name: "leader-term", count: null, find: terms },
  { name: "doubled-tick", count: "doubled", find: doubledTicks },
  { name: "skipped-tick", count: "skipped", find: skippedTicks },
  { name: "early-tick", count: null, find: earlyTicks },
  { name: "lost-tick", count: "lost", find: lostTicks },
  { name: "exceeded-limit", count: null, find: exceeded },
];
