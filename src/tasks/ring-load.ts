import { bucketOf } from "../cluster/ring.ts";
import type { LoadBounds, LoadRow } from "./sql/bucket-load.ts";

/** What waits, runs and ended of late, as far as it was looked at. */
export interface KeyLoad {
  readonly waiting: number;
  readonly running: number;
  /** Among the newest tasks that ended. */
  readonly ended: number;
}

export interface BucketLoad extends KeyLoad {
  readonly bucket: number;
  /** There is more than was counted. */
  readonly isCut: boolean;
}

/** How the tasks of a key space are spread: a sample of bounded cost, not a count. */
export interface RingLoad {
  /** Those that have something, in order. */
  readonly buckets: readonly BucketLoad[];
  /** The busiest first. */
  readonly keys: readonly (KeyLoad & { readonly key: string; readonly bucket: number })[];
  readonly looked: LoadBounds;
}

const NOTHING = { waiting: 0, running: 0, ended: 0 };
const total = ({ waiting, running, ended }: KeyLoad): number => waiting + running + ended;

/** Puts together what was read of live tasks and of those that ended. */
export function toRingLoad(rows: readonly LoadRow[], looked: LoadBounds): RingLoad {
  const buckets = new Map<number, BucketLoad>();
  const keys = new Map<string, KeyLoad & { key: string; bucket: number }>();
  for (const { bucket: told, key, is_cut: isCut, waiting, running, ended } of rows) {
    const bucket = told ?? bucketOf(key ?? "");
    if (key !== null) {
      const known = keys.get(key) ?? { ...NOTHING, key, bucket };
      keys.set(key, { key, bucket, ...added(known, { waiting, running, ended }) });
    }
    // Live tasks of a bucket are told by its own row, those that ended by their keys.
    const more = key === null ? { waiting, running, ended: 0 } : { ...NOTHING, ended };
    const known = buckets.get(bucket) ?? { ...NOTHING, bucket, isCut: false };
    buckets.set(bucket, { bucket, ...added(known, more), isCut: known.isCut || isCut });
  }
  return {
    buckets: [...buckets.values()].sort((a, b) => a.bucket - b.bucket),
    keys: [...keys.values()].sort((a, b) => total(b) - total(a)).slice(0, looked.keys),
    looked,
  };
}

const added = (a: KeyLoad, b: KeyLoad): KeyLoad => ({
  waiting: a.waiting + b.waiting,
  running: a.running + b.running,
  ended: a.ended + b.ended,
});
