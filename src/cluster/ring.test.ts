import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { mixedHash } from "../base/identifier.ts";
import {
  assignBuckets,
  BUCKETS,
  type BucketMove,
  type BucketOwners,
  bucketOf,
  ringPoints,
  simulateChange,
  VIRTUAL_NODES,
} from "./ring.ts";

const NOBODY: BucketOwners = new Map();
const workers = (count: number): string[] =>
  Array.from({ length: count }, (_, index) => `worker-${index + 1}`);

const load = (owners: BucketOwners, worker: string): number =>
  [...owners.values()].filter((owner) => owner === worker).length;
const loads = (owners: BucketOwners, ids: readonly string[]): number[] =>
  ids.map((id) => load(owners, id));
const spread = (counts: readonly number[]): number => Math.max(...counts) - Math.min(...counts);

function moved(before: BucketOwners, after: BucketOwners): BucketMove[] {
  return [...after].flatMap(([bucket, to]) => {
    const from = before.get(bucket);
    return from === to ? [] : [{ bucket, from, to }];
  });
}

/** The fewest buckets that must change hands for an even spread, by arithmetic alone. */
function fewestMoves(before: BucketOwners, ids: readonly string[], buckets: number): number {
  const share = Math.floor(buckets / ids.length);
  const extra = buckets % ids.length;
  const counts = loads(before, ids).sort((a, b) => b - a);
  const kept = counts.map((count, rank) => Math.min(count, share + (rank < extra ? 1 : 0)));
  return buckets - kept.reduce((sum, count) => sum + count, 0);
}

/** Any owners of any number of buckets, some of them gone, some buckets without one. */
const scenes = fc
  .record({
    buckets: fc.integer({ min: 1, max: 60 }),
    count: fc.integer({ min: 1, max: 8 }),
    // A few have most, so that several hold too much at once.
    picks: fc.array(fc.oneof(fc.nat(2), fc.integer({ min: -1, max: 10 })), {
      minLength: 60,
      maxLength: 60,
    }),
  })
  .map(({ buckets, count, picks }) => ({
    buckets,
    ids: workers(count),
    previous: new Map(
      picks.slice(0, buckets).flatMap((pick, bucket): [number, string][] => {
        return pick < 0 ? [] : [[bucket, `worker-${pick + 1}`]];
      }),
    ),
  }));

describe("bucketOf", () => {
  // Computed by an implementation in another language: every port must agree with these.
  it.each([
    ["", 2_872_998_923, 203],
    ["a", 444_641_715, 315],
    ["order:9182", 2_807_500_883, 203],
    ["order:9183", 2_151_032_112, 72],
    ["customer-42", 2_807_919_948, 228],
    ["Müller", 4_206_026_394, 234],
    ["日本", 4_026_831_135, 15],
    ["\u{1F600}", 855_877_642, 322],
  ])("of %j is the golden value", (key, hash, bucket) => {
    expect(mixedHash(key)).toBe(hash);
    expect(bucketOf(key)).toBe(bucket);
    expect(bucketOf(key, 7)).toBe(hash % 7);
  });

  it("spreads neighbouring keys evenly", () => {
    const counts = Array.from({ length: BUCKETS }, () => 0);
    for (let id = 0; id < 36_000; id += 1) counts[bucketOf(`order:${id}`)]! += 1;
    // A hundred each, give or take five standard deviations.
    expect(counts.filter((count) => Math.abs(count - 100) >= 50)).toEqual([]);
  });
});

describe("ringPoints", () => {
  it("are sorted, where the published formula puts them, whatever the order of workers", () => {
    const points = ringPoints(["worker-B", "worker-A"]);
    expect(points).toHaveLength(2 * VIRTUAL_NODES);
    expect(points).toEqual(points.toSorted((a, b) => a.position - b.position));
    expect(points).toContainEqual({ position: 3_889_342_768, worker: "worker-A" });
    expect(mixedHash("worker-A#37")).toBe(3_889_342_768);
    expect(ringPoints(["worker-A", "worker-B", "worker-A"])).toEqual(points);
  });
});

describe("assignBuckets", () => {
  it.each(Array.from({ length: 12 }, (_, index) => index + 1))(
    "spreads 360 buckets over %i workers within one bucket of even",
    (count) => {
      const owners = assignBuckets(workers(count), NOBODY);
      expect([...owners.keys()]).toEqual(Array.from({ length: 360 }, (_, bucket) => bucket));
      for (const held of loads(owners, workers(count))) {
        expect(Math.abs(held - 360 / count)).toBeLessThan(1);
      }
    },
  );

  it.each(Array.from({ length: 12 }, (_, index) => index + 1))(
    "moves no more buckets than it must when one joins or leaves %i workers",
    (count) => {
      const before = assignBuckets(workers(count), NOBODY);
      const joined = moved(before, assignBuckets([...workers(count), "newcomer"], before));
      const share = 360 / (count + 1);
      expect([Math.floor(share), Math.ceil(share)]).toContain(joined.length);
      expect(new Set(joined.map(({ to }) => to))).toEqual(new Set(["newcomer"]));
      if (count === 1) return;
      for (const gone of workers(count)) {
        const left = workers(count).filter((id) => id !== gone);
        const moves = moved(before, assignBuckets(left, before));
        expect(moves).toHaveLength(load(before, gone));
        expect(new Set(moves.map(({ from }) => from))).toEqual(new Set([gone]));
      }
    },
  );

  it("moves only a replaced worker's buckets, to its replacement but for the remainder", () => {
    for (const gone of workers(7)) {
      const before = assignBuckets(workers(7), NOBODY);
      const left = workers(7).filter((id) => id !== gone);
      const moves = moved(before, assignBuckets([...left, "replacement"], before));
      expect(moves).toHaveLength(load(before, gone));
      for (const { from } of moves) expect(from).toBe(gone);
      // 360 is no multiple of 7: the one bucket above the share may go to anybody.
      const elsewhere = moves.filter(({ to }) => to !== "replacement");
      expect(elsewhere.length).toBeLessThan(2);
    }
  });

  it("is total, even and as still as can be, from any owners", () => {
    fc.assert(
      fc.property(scenes, ({ buckets, ids, previous }) => {
        const owners = assignBuckets(ids, previous, { buckets });
        expect(owners.size).toBe(buckets);
        expect([...owners.values()].filter((owner) => !ids.includes(owner))).toEqual([]);
        expect(spread(loads(owners, ids))).toBeLessThan(2);
        expect(moved(previous, owners)).toHaveLength(fewestMoves(previous, ids, buckets));
      }),
      { numRuns: 200 },
    );
  });

  it("changes nothing when asked again", () => {
    fc.assert(
      fc.property(scenes, ({ buckets, ids, previous }) => {
        const owners = assignBuckets(ids, previous, { buckets });
        expect(assignBuckets(ids, owners, { buckets })).toEqual(owners);
      }),
    );
  });

  it("decides the same for any order of its input, and for workers named twice", () => {
    const shuffled = scenes.chain((scene) =>
      fc.record({
        scene: fc.constant(scene),
        ids: fc.shuffledSubarray([...scene.ids, ...scene.ids], {
          minLength: scene.ids.length * 2,
        }),
        previous: fc.shuffledSubarray([...scene.previous], { minLength: scene.previous.size }),
      }),
    );
    fc.assert(
      fc.property(shuffled, ({ scene, ids, previous }) => {
        const { buckets } = scene;
        const one = assignBuckets(scene.ids, scene.previous, { buckets });
        const other = assignBuckets(ids, new Map(previous), { buckets });
        expect([...other]).toEqual([...one]);
      }),
    );
  });

  it("keeps all of it through random joins and leaves", () => {
    const history = fc.array(fc.record({ isJoin: fc.boolean(), pick: fc.nat(99) }), {
      maxLength: 20,
    });
    fc.assert(
      fc.property(history, (steps) => {
        let live = ["first"];
        let owners = assignBuckets(live, NOBODY);
        for (const [step, { isJoin, pick }] of steps.entries()) {
          const gone = live[pick % live.length];
          const isLeave = !isJoin && live.length > 1;
          const next = isLeave ? live.filter((id) => id !== gone) : [...live, `joined-${step}`];
          const wanted = assignBuckets(next, owners);
          const moves = moved(owners, wanted);
          expect(spread(loads(wanted, next))).toBeLessThan(2);
          if (isLeave) expect(moves.every(({ from }) => from === gone)).toBe(true);
          else expect(moves.every(({ to }) => to === `joined-${step}`)).toBe(true);
          const share = 360 / next.length;
          const allowed = [Math.floor(share), Math.ceil(share)];
          expect(isLeave ? [load(owners, gone ?? "")] : allowed).toContain(moves.length);
          live = next;
          owners = wanted;
        }
      }),
      { numRuns: 50 },
    );
  });

  it("leaves no bucket with anybody when there is no worker", () => {
    expect(assignBuckets([], assignBuckets(workers(2), NOBODY)).size).toBe(0);
  });

  it("gives every bucket away when there are more workers than buckets", () => {
    const owners = assignBuckets(workers(9), NOBODY, { buckets: 4 });
    expect(owners.size).toBe(4);
    expect(new Set(owners.values()).size).toBe(4);
  });

  it.each([{ buckets: 0 }, { buckets: 1.5 }, { virtualNodes: 0 }])("refuses %j", (options) => {
    expect(() => assignBuckets(workers(2), NOBODY, options)).toThrow("must be a whole number");
  });

  it("places most buckets where a plain ring does, which alone would be uneven", () => {
    const ids = workers(8);
    const points = ringPoints(ids);
    const plain = new Map(
      Array.from({ length: BUCKETS }, (_, bucket): [number, string] => {
        const position = mixedHash(`bucket:${bucket}`);
        const point = points.find((one) => one.position >= position) ?? points[0];
        return [bucket, point!.worker];
      }),
    );
    // Why load is bounded: hundreds of points each, and one worker still has far more than another.
    expect(spread(loads(plain, ids))).toBeGreaterThan(10);
    const bounded = assignBuckets(ids, NOBODY);
    expect(spread(loads(bounded, ids))).toBe(0);
    expect(moved(plain, bounded).length).toBeLessThan(BUCKETS / 4);
  });

  it("stays fast with 200 workers", () => {
    // Processor time, so that a busy machine does not fail the test.
    const times = [1, 2, 3, 4, 5].map(() => {
      const started = process.cpuUsage();
      assignBuckets(workers(200), NOBODY);
      return process.cpuUsage(started).user / 1_000;
    });
    expect(Math.min(...times)).toBeLessThan(50);
  });
});

describe("simulateChange", () => {
  const before = assignBuckets(workers(3), NOBODY);

  it("tells what a join would move, from whom and to whom", () => {
    const moves = simulateChange(before, { join: "worker-4" });
    expect(moves).toEqual(moved(before, assignBuckets(workers(4), before)));
    expect(moves).toHaveLength(90);
    for (const worker of workers(3)) {
      expect(moves.filter(({ from }) => from === worker)).toHaveLength(30);
    }
  });

  it("tells what a leave would move", () => {
    const moves = simulateChange(before, { leave: "worker-2" });
    expect(moves).toEqual(moved(before, assignBuckets(["worker-1", "worker-3"], before)));
    expect(moves).toHaveLength(120);
  });

  it("tells that nobody is left to own anything", () => {
    const alone = assignBuckets(["only"], NOBODY, { buckets: 2 });
    expect(simulateChange(alone, { leave: "only" }, { buckets: 2 })).toEqual([
      { bucket: 0, from: "only", to: undefined },
      { bucket: 1, from: "only", to: undefined },
    ]);
  });

  it("moves nothing for a worker that is already there, or never was", () => {
    expect(simulateChange(before, { join: "worker-1" })).toEqual([]);
    expect(simulateChange(before, { leave: "worker-9" })).toEqual([]);
  });
});
