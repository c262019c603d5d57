import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { PACK_TASKS_MAX } from "./claimed-pack.ts";
import type { EncodedTask } from "./encode.ts";
import { type PackPlan, toPacks } from "./packing.ts";

const shape: EncodedTask["shape"] = {
  lane: -1,
  queue: "orders",
  tenant: "default",
  priority: 5,
  max_attempts: 5,
};

const keyed = (bucket: number, nth = 0): EncodedTask => ({
  payload: "1",
  key: `key ${bucket} ${nth}`,
  bucket,
  shape,
  isSerial: false,
  idempotency: undefined,
});

const unkeyed: EncodedTask = { ...keyed(0), key: "", bucket: undefined };

const repeat = (count: number, make: (n: number) => EncodedTask): EncodedTask[] =>
  Array.from({ length: count }, (_, n) => make(n));

const sizesOf = (packs: readonly PackPlan[] | undefined): number[] | undefined =>
  packs?.map(({ places }) => places.length);

describe("a bulk without keys", () => {
  it("is cut into packs of one size", () => {
    expect(
      sizesOf(
        toPacks(
          repeat(250, () => unkeyed),
          undefined,
        ),
      ),
    ).toEqual([84, 84, 82]);
  });

  it("is rows when it is small", () => {
    expect(
      toPacks(
        repeat(19, () => unkeyed),
        undefined,
      ),
    ).toBeUndefined();
  });
});

describe("a bulk with keys", () => {
  it("is packs of different keys, each with its bucket", () => {
    const [pack, ...others] =
      toPacks(
        repeat(30, (n) => keyed(n)),
        undefined,
      ) ?? [];
    expect(others).toEqual([]);
    expect(pack?.buckets).toEqual(Array.from({ length: 30 }, (_, n) => n));
    expect(pack?.keys?.[7]).toBe("key 7 0");
  });

  it("has the tasks of each owner apart", () => {
    const owners = Array.from({ length: 360 }, (_, bucket) => bucket % 2);
    const packs =
      toPacks(
        repeat(100, (n) => keyed(n)),
        owners,
      ) ?? [];
    expect(packs.map(({ buckets = [] }) => new Set(buckets.map((one) => one % 2)).size)).toEqual([
      1, 1,
    ]);
  });

  it("is rows when it has too few keys, or too many owners", () => {
    expect(
      toPacks(
        repeat(100, () => keyed(1)),
        undefined,
      ),
    ).toBeUndefined();
    const owners = Array.from({ length: 360 }, (_, bucket) => bucket);
    expect(
      toPacks(
        repeat(100, (n) => keyed(n)),
        owners,
      ),
    ).toBeUndefined();
  });

  it("is rows when some of it has no key", () => {
    expect(toPacks([...repeat(50, (n) => keyed(n)), unkeyed], undefined)).toBeUndefined();
    expect(toPacks([unkeyed, ...repeat(50, (n) => keyed(n))], undefined)).toBeUndefined();
  });

  it("has no key twice in a pack, and each key in its order", () => {
    const tasks = fc.array(
      fc
        .record({ bucket: fc.nat(30), nth: fc.nat(4) })
        .map(({ bucket, nth }) => keyed(bucket, nth)),
      { minLength: 20, maxLength: 600, size: "max" },
    );
    const owners = fc.array(fc.nat(3), { minLength: 360, maxLength: 360 });
    fc.assert(
      fc.property(tasks, owners, (all, given) => {
        const packs = toPacks(all, given);
        if (packs === undefined) return;
        const places = packs.flatMap((pack) => pack.places);
        expect(places.toSorted((a, b) => a - b)).toEqual([...all.keys()]);
        const last = new Map<string, number>();
        for (const { places: own, keys = [], buckets = [] } of packs) {
          expect(own.length).toBeLessThanOrEqual(PACK_TASKS_MAX);
          expect(new Set(keys).size).toBe(keys.length);
          expect(new Set(buckets.map((bucket) => given[bucket])).size).toBe(1);
          for (const [n, place] of own.entries()) {
            expect(place).toBeGreaterThan(last.get(keys[n] ?? "") ?? -1);
            last.set(keys[n] ?? "", place);
          }
        }
      }),
    );
  });
});
