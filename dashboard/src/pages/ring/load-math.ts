import type { BucketLoad, KeyLoad, RingLoad } from "../../api/types.ts";

export const NO_LOAD: KeyLoad = { waiting: 0, running: 0, ended: 0 };

/** What waits and runs: what a move would take along. */
export const liveOf = ({ waiting, running }: KeyLoad): number => waiting + running;

/** By bucket. */
export const byBucket = (load: RingLoad | undefined): ReadonlyMap<number, BucketLoad> =>
  new Map(load?.buckets.map((one) => [one.bucket, one]));

/** Of some buckets together, and whether there is more than was counted. */
export function sumOf(
  load: RingLoad | undefined,
  buckets: Iterable<number>,
): KeyLoad & { readonly isCut: boolean } {
  const known = byBucket(load);
  let sum = { ...NO_LOAD, isCut: false };
  for (const bucket of buckets) {
    const one = known.get(bucket);
    if (one === undefined) continue;
    sum = {
      waiting: sum.waiting + one.waiting,
      running: sum.running + one.running,
      ended: sum.ended + one.ended,
      isCut: sum.isCut || one.isCut,
    };
  }
  return sum;
}

/** "12", or "more than 100" where it was not counted to the end. */
export const atLeast = (count: number, isCut: boolean): string =>
  `${isCut ? "more than " : ""}${count.toLocaleString("en")}`;
