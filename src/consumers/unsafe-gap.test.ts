import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { eventsAt } from "../../test/support/persisted-event.ts";
import { contiguousPrefix, GapAge, gapSkipTarget, safeHarbor } from "./unsafe-gap.ts";

const big = (...positions: number[]): bigint[] => positions.map(BigInt);

describe("safeHarbor", () => {
  it("stays a lag behind the visible head", () => {
    expect(safeHarbor(2n, big(2, 3, 4, 5, 6), 1)).toBe(5n);
  });

  it("goes one step when fewer rows are visible than the lag", () => {
    expect(safeHarbor(2n, big(2, 3), 8)).toBe(2n);
  });

  it("never crosses a second, fresh gap", () => {
    expect(safeHarbor(2n, big(2, 4, 5, 6), 1)).toBe(2n);
  });

  it("has no answer when the expected position is missing", () => {
    expect(safeHarbor(2n, big(3, 4), 1)).toBeUndefined();
    expect(safeHarbor(2n, [], 1)).toBeUndefined();
  });

  it("takes a negative lag for none", () => {
    expect(safeHarbor(2n, big(2, 3, 4), -5)).toBe(4n);
  });
});

describe("gapSkipTarget", () => {
  it("skips consecutive missing positions together", () => {
    expect(gapSkipTarget(100n, big(102, 103, 104), 1)).toBe(103n);
    expect(gapSkipTarget(100n, big(103, 104), 8)).toBe(103n);
  });

  it("skips a single missing position", () => {
    expect(gapSkipTarget(1n, big(2, 3, 4, 5), 1)).toBe(4n);
  });

  it("has no target when nothing is visible behind the gap", () => {
    expect(gapSkipTarget(100n, [], 8)).toBeUndefined();
  });

  it("ends at a visible position from which on nothing else is missing", () => {
    const rows = fc
      .uniqueArray(fc.bigInt({ min: 101n, max: 140n }), { minLength: 1, maxLength: 20 })
      .map((all) => all.sort((a, b) => (a < b ? -1 : 1)));
    fc.assert(
      fc.property(rows, fc.nat(10), (positions, lag) => {
        const target = gapSkipTarget(100n, positions, lag);
        if (target === undefined) throw new Error("no target");
        expect(positions).toContain(target);
        const passed = positions.filter((position) => position <= target);
        const first = passed[0] ?? 0n;
        expect(passed).toEqual(passed.map((_, index) => first + BigInt(index)));
      }),
    );
  });
});

describe("contiguousPrefix", () => {
  const prefix = (checkpoint: bigint, ...at: number[]): number[] =>
    contiguousPrefix(checkpoint, eventsAt(...at)).map((event) => Number(event.position));

  it("is the run that continues the checkpoint", () => {
    expect(prefix(4n, 5, 6, 8)).toEqual([5, 6]);
  });

  it("is empty before a gap", () => {
    expect(prefix(4n, 6, 7)).toEqual([]);
  });
});

describe("GapAge", () => {
  it("counts from when a gap was first seen", () => {
    const age = new GapAge();
    expect(age.observe(5n, 1_000)).toBe(0);
    expect(age.observe(5n, 1_300)).toBe(300);
  });

  it("starts anew for another gap, and after the gap was gone", () => {
    const age = new GapAge();
    age.observe(5n, 1_000);
    expect(age.observe(6n, 1_500)).toBe(0);
    age.clear();
    expect(age.observe(6n, 2_000)).toBe(0);
  });
});
