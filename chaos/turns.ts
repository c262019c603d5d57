import type { Random } from "../test/support/random.ts";
import type { Fault } from "./faults/fault.ts";
import { FIRST } from "./faults/index.ts";

/**
 * Each kind comes once before any comes again, in an order of the seed's. At first those come that
 * a short run must not miss.
 */
export function* inTurn(faults: readonly Fault[], random: Random): Generator<Fault> {
  if (faults.length === 0) return;
  const isFirst = ({ kind }: Fault): boolean => FIRST.includes(kind);
  yield* shuffled(faults.filter(isFirst), random);
  yield* shuffled(
    faults.filter((fault) => !isFirst(fault)),
    random,
  );
  for (;;) yield* shuffled(faults, random);
}

function* shuffled(faults: readonly Fault[], random: Random): Generator<Fault> {
  const left = [...faults];
  while (left.length > 0) {
    const [next] = left.splice(random.below(left.length), 1);
    if (next !== undefined) yield next;
  }
}
