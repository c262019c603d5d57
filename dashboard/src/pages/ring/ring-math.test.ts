import { describe, expect, it } from "vitest";
import { assignBuckets } from "../../../../src/cluster/ring.ts";
import {
  BUCKETS,
  bucketOfKey,
  colorsOf,
  describeRuns,
  groupMoves,
  movesOf,
  nextPoint,
  ownersOf,
  pieceOf,
  plainSpread,
  pointsOf,
  runsOf,
} from "./ring-math.ts";

const OWNERS = assignBuckets(["a", "b", "c"], new Map());

describe("runs of buckets", () => {
  it("cover every bucket once, by its owner", () => {
    const covered = runsOf(OWNERS).flatMap(({ from, to, owner }) =>
      Array.from({ length: to - from + 1 }, (_, index) => [from + index, owner] as const),
    );
    expect(new Map(covered)).toEqual(new Map(OWNERS));
    expect(covered).toHaveLength(BUCKETS);
  });

  it("are as few as can be, and said in words", () => {
    const owners = ownersOf({
      keySpace: "orders",
      tenant: "default",
      queues: [],
      owners: [{ worker: "a", epoch: "1", buckets: [0, 1, 2, 7] }],
    });
    expect(describeRuns(runsOf(owners))).toBe("0–2, 7");
  });
});

describe("a supposed change", () => {
  it("moves only what it must", () => {
    const moves = movesOf(OWNERS, { leave: "a" });
    expect(moves.every(({ from }) => from === "a")).toBe(true);
    expect(moves).toHaveLength([...OWNERS.values()].filter((one) => one === "a").length);
    const joined = movesOf(OWNERS, { join: "d" });
    expect(joined.every(({ to }) => to === "d")).toBe(true);
    expect(joined).toHaveLength(BUCKETS / 4);
  });

  it("is told from whom to whom", () => {
    const groups = groupMoves(movesOf(OWNERS, { leave: "a" }, 20));
    expect(groups.map(({ from }) => from)).toEqual(["a", "a"]);
    expect(new Set(groups.map(({ to }) => to))).toEqual(new Set(["b", "c"]));
    const moved = groups.flatMap(({ buckets }) => buckets).sort((x, y) => x - y);
    expect(moved).toEqual([...OWNERS].filter(([, one]) => one === "a").map(([bucket]) => bucket));
  });
});

describe("virtual nodes", () => {
  it("make the ring alone more even, the more there are", () => {
    const spread = (count: number): number => {
      const [least, most] = plainSpread(pointsOf(["a", "b", "c"], count), BUCKETS);
      return most - least;
    };
    expect(spread(200)).toBeLessThan(spread(1));
  });

  it("are looked for clockwise, and round the end", () => {
    const points = [
      { position: 10, worker: "a" },
      { position: 20, worker: "b" },
    ];
    expect(nextPoint(points, 10)?.worker).toBe("a");
    expect(nextPoint(points, 11)?.worker).toBe("b");
    expect(nextPoint(points, 21)?.worker).toBe("a");
    expect(nextPoint([], 1)).toBeUndefined();
  });
});

describe("drawing", () => {
  it("draws a whole circle as one that can be seen", () => {
    const path = pieceOf({ from: 0, to: BUCKETS - 1 }, BUCKETS, [80, 100]);
    const [, start, end] = /^M(\S+ \S+)A100 100 0 1 1 (\S+ \S+)L.*Z$/.exec(path) ?? [];
    expect(start).toBe("0.00 -100.00");
    expect(end).toBe("-0.09 -100.00");
  });

  it("gives neighbours in name other colours", () => {
    expect(new Set(colorsOf(["a", "b", "c"]).values()).size).toBe(3);
  });

  it("finds the bucket of a key as the engine does, beyond ASCII too", () => {
    const hash = (key: string): number => {
      let state = 0x811c9dc5;
      for (const byte of Buffer.from(key)) state = Math.imul(state ^ byte, 0x01000193) >>> 0;
      state = Math.imul(state ^ (state >>> 16), 0x85ebca6b);
      state = Math.imul(state ^ (state >>> 13), 0xc2b2ae35);
      return (state ^ (state >>> 16)) >>> 0;
    };
    for (const key of ["order-4711", "größe-✓", "😀"]) {
      expect(bucketOfKey(key)).toBe(hash(key) % BUCKETS);
    }
  });
});
