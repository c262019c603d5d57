import { expect, it } from "vitest";
import { bucketOf } from "../cluster/ring.ts";
import { toRingLoad } from "./ring-load.ts";

const LOOKED = { perBucket: 100, packs: 10, ended: 100, keys: 2 };

it("puts what is live and what ended of a bucket and of a key together", () => {
  const hot = bucketOf("hot");
  const other = bucketOf("other");
  const load = toRingLoad(
    [
      { bucket: hot, key: null, waiting: 100, running: 1, ended: 0, is_cut: true },
      { bucket: hot, key: "hot", waiting: 90, running: 1, ended: 0, is_cut: false },
      { bucket: hot, key: "mild", waiting: 10, running: 0, ended: 0, is_cut: false },
      { bucket: null, key: "hot", waiting: 0, running: 0, ended: 7, is_cut: false },
      { bucket: null, key: "other", waiting: 0, running: 0, ended: 20, is_cut: false },
    ],
    LOOKED,
  );
  expect(load.buckets).toEqual(
    [
      { bucket: hot, waiting: 100, running: 1, ended: 7, isCut: true },
      { bucket: other, waiting: 0, running: 0, ended: 20, isCut: false },
    ].sort((a, b) => a.bucket - b.bucket),
  );
  expect(load.keys).toEqual([
    { key: "hot", bucket: hot, waiting: 90, running: 1, ended: 7 },
    { key: "other", bucket: other, waiting: 0, running: 0, ended: 20 },
  ]);
});
