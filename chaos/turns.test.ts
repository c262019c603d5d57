import { describe, expect, it } from "vitest";
import { Random } from "../test/support/random.ts";
import { FAULTS, FIRST } from "./faults/index.ts";
import { inTurn } from "./turns.ts";

function kindsOf(seed: number, count: number, faults = FAULTS): string[] {
  const kinds: string[] = [];
  for (const { kind } of inTurn(faults, new Random(seed))) {
    kinds.push(kind);
    if (kinds.length === count) break;
  }
  return kinds;
}

const sorted = (kinds: readonly string[]): string[] => [...kinds].sort();
const ALL = FAULTS.map(({ kind }) => kind);

describe("the order of faults", () => {
  it.each([1, 2, 3])("begins with those that no run may miss (seed %i)", (seed) => {
    expect(sorted(kindsOf(seed, FIRST.length))).toEqual(sorted(FIRST));
  });

  it("has each kind once before any comes again", () => {
    const kinds = kindsOf(1, 2 * ALL.length);
    expect(sorted(kinds.slice(0, ALL.length))).toEqual(sorted(ALL));
    expect(sorted(kinds.slice(ALL.length))).toEqual(sorted(ALL));
  });

  it("is the seed's", () => {
    expect(kindsOf(1, 50)).toEqual(kindsOf(1, 50));
    expect(kindsOf(1, FIRST.length)).not.toEqual(kindsOf(3, FIRST.length));
  });

  it("is of those that were asked for", () => {
    const few = FAULTS.filter(({ kind }) => ["scale", "kill"].includes(kind));
    expect(kindsOf(1, 2, few)).toEqual(["kill", "scale"]);
    expect(kindsOf(1, 1, [])).toEqual([]);
  });
});
