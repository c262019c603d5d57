import { compareNumbers, type Facts, groupBy } from "../../src/checker/facts.ts";
import type { Finding, Rule } from "../../src/checker/rule.ts";
import type { HandledFact, MoveFact } from "../../src/checker/truth.ts";

/*
 * A batch moves its checkpoint in the transaction in which it handles. So the moves of a partition
 * are a chain from the beginning of the log, and each event is handled where the chain passes it.
 */

type Part = Pick<MoveFact, "consumer" | "partition">;
const partOf = ({ consumer, partition }: Part): string =>
  `partition ${partition} of consumer ${consumer}`;

const BEGINNING = "0";

function chainsOf({ truth }: Facts): Map<string, MoveFact[]> {
  const chains = groupBy(truth.moves, partOf);
  for (const moves of chains.values()) moves.sort((a, b) => compareNumbers(a.seq, b.seq));
  return chains;
}

/** What is wrong with a move that comes after one that ended there. */
function faultOf({ from, to }: MoveFact, reached: string): string | undefined {
  const order = compareNumbers(from, reached);
  if (order > 0) return `left out what is between ${reached} and ${from}`;
  if (order < 0) return `began at ${from} again, and had been at ${reached}`;
  return compareNumbers(to, from) > 0 ? undefined : `went from ${from} back to ${to}`;
}

function* brokenChains(facts: Facts): Generator<Finding> {
  for (const [part, moves] of chainsOf(facts)) {
    let before: MoveFact | undefined;
    for (const move of moves) {
      const fault = faultOf(move, before?.to ?? BEGINNING);
      const slice = before === undefined ? [move] : [before, move];
      if (fault !== undefined) yield { message: `${part} ${fault}`, slice };
      before = move;
    }
  }
}

/** Of ascending moves, the one that passed the position. */
function passing(moves: readonly MoveFact[], position: string): MoveFact | undefined {
  let low = 0;
  let high = moves.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (compareNumbers(moves[middle]?.to ?? "", position) < 0) low = middle + 1;
    else high = middle;
  }
  const move = moves[low];
  return move !== undefined && compareNumbers(move.from, position) < 0 ? move : undefined;
}

/** What nobody moved past, or is handled again, or never was, others tell. */
function* strays(facts: Facts): Generator<Finding> {
  const chains = chainsOf(facts);
  const batches = new Set(facts.truth.moves.map(({ xid }) => xid));
  const known = new Set(facts.positions);
  for (const { byPosition, setsAside } of facts.readings) {
    const isLater = ({ xid }: HandledFact): boolean => setsAside && !batches.has(xid);
    for (const fact of byPosition.first.values()) {
      const move = passing(chains.get(partOf(fact)) ?? [], fact.position);
      if (move === undefined || move.xid === fact.xid || isLater(fact)) continue;
      if (!known.has(fact.position)) continue;
      const message = `${partOf(fact)} handled ${fact.position} in another batch than passed it`;
      yield { message, slice: [move, fact] };
    }
  }
}

/** How checkpoints came to where they are. */
export const CHECKPOINT_RULES: readonly Rule[] = [
  { name: "checkpoint-chain", count: null, find: brokenChains },
  { name: "stray-event", count: null, find: strays },
];
