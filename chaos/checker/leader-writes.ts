import { compareNumbers, type Facts } from "../../src/checker/facts.ts";
import type { Finding, Rule } from "../../src/checker/rule.ts";
import type { LeaderWriteFact } from "../../src/checker/truth.ts";

/*
 * Who leads writes who owns consumers and buckets, and holds the row of the term meanwhile: so the
 * term cannot change before the write commits. A trigger sees who holds the row, not under which
 * term the writer believes to be. It need not: whoever holds the row has compared it.
 */

function faultOf(write: LeaderWriteFact, before: LeaderWriteFact | undefined): string | undefined {
  if (!write.isHeld) return "without holding the term";
  if (write.leader === null) return `in term ${write.term}, which nobody led`;
  if (before === undefined || compareNumbers(write.term, before.term) >= 0) return undefined;
  return `in term ${write.term}, after a write in term ${before.term}`;
}

function* strayWrites({ truth }: Facts): Generator<Finding> {
  let before: LeaderWriteFact | undefined;
  for (const write of truth.writes.toSorted((a, b) => compareNumbers(a.seq, b.seq))) {
    const fault = faultOf(write, before);
    const slice = before === undefined ? [write] : [before, write];
    if (fault !== undefined) yield { message: `${write.what} was written ${fault}`, slice };
    before = write;
  }
}

/** A claim compares the epoch: one that comes again is mistaken for what it was before. */
function* oldEpochs({ truth }: Facts): Generator<Finding> {
  const latest = new Map<number, LeaderWriteFact>();
  for (const write of truth.writes.toSorted((a, b) => compareNumbers(a.seq, b.seq))) {
    const { keySpace, epoch, what } = write;
    if (keySpace === null || epoch === null) continue;
    const before = latest.get(keySpace);
    latest.set(keySpace, write);
    if (before === undefined || compareNumbers(epoch, before.epoch ?? "0") > 0) continue;
    const message = `${what} got epoch ${epoch} of key space ${keySpace} after ${before.epoch}`;
    yield { message, slice: [before, write] };
  }
}

/** What only a leader may write. */
export const LEADER_WRITE_RULES: readonly Rule[] = [
  { name: "leader-write", count: null, find: strayWrites },
  { name: "bucket-epoch", count: null, find: oldEpochs },
];
