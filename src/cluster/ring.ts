import { mixedHash } from "../base/identifier.ts";
import { requireNumber } from "../base/options.ts";

/** Keys hash into this many buckets. Stored with every keyed task, so it never changes. */
export const BUCKETS = 360;
/** Points of each worker on the ring: many small arcs instead of one wedge. */
export const VIRTUAL_NODES = 150;

/** Bucket to worker. */
export type BucketOwners = ReadonlyMap<number, string>;

export interface RingOptions {
  readonly buckets?: number;
  readonly virtualNodes?: number;
}

/** One virtual node: `position` is 32 bits, `worker` owns the arc that ends there. */
export interface RingPoint {
  readonly position: number;
  readonly worker: string;
}

export type RingChange = { readonly join: string } | { readonly leave: string };

export interface BucketMove {
  readonly bucket: number;
  readonly from: string | undefined;
  readonly to: string | undefined;
}

// A point packs its position and its worker into one number, because a typed array of numbers
// sorts many times faster than an array of objects. 32 + 20 bits are exact in a double.
const WORKERS_MAX = 2 ** 20;

const encoder = new TextEncoder();

/** By their UTF-8, as other languages sort. Without Buffer: the dashboard uses this as well. */
function byBytes(a: string, b: string): number {
  const [left, right] = [encoder.encode(a), encoder.encode(b)];
  const at = left.findIndex((byte, index) => byte !== right[index]);
  if (at < 0) return left.length - right.length;
  return (left[at] ?? 0) - (right[at] ?? -1);
}

const byBytesOnce = (workers: Iterable<string>): string[] => [...new Set(workers)].sort(byBytes);

/** The bucket of a key: `mixedHash` over its UTF-8, the same in every language and process. */
export function bucketOf(key: string, buckets = BUCKETS): number {
  return mixedHash(key) % buckets;
}

/**
 * Gives every bucket to one worker: total unless there is no worker, even within one bucket, and
 * the same for any order of `workers`. Previous owners that are still there keep what an even
 * share allows, so a change moves as few buckets as evenness permits: a newcomer takes its share
 * and nobody else gains, a leaver's buckets are shared out and nobody else loses.
 *
 * Buckets without an owner are placed by a consistent-hash ring: clockwise to the first worker
 * that has room. The bound is needed because a plain ring, even with 150 points per worker, leaves
 * the fullest worker with far more buckets than the emptiest.
 */
export function assignBuckets(
  workers: readonly string[],
  previous: BucketOwners,
  options: RingOptions = {},
): Map<number, string> {
  const buckets = requireNumber("buckets", options.buckets ?? BUCKETS, { min: 1, integer: true });
  const ids = byBytesOnce(workers);
  if (ids.length === 0) return new Map();
  const share = Math.floor(buckets / ids.length);
  const held = heldBuckets(ids, previous, buckets);
  const counts = [...held.values()].map((list) => list.length);
  const isTotal = counts.reduce((sum, count) => sum + count, 0) === buckets;
  const isEven = counts.every((count) => count === share || count === share + 1);
  // A leader asks again and again, mostly about workers that did not change.
  if (isTotal && isEven) return inOrder(held, buckets);
  const ring = new Ring(ids, options.virtualNodes ?? VIRTUAL_NODES);
  let extras = shedSurplus(ring, held, { share, extras: buckets % ids.length });
  const owned = inOrder(held, buckets);
  for (let bucket = 0; bucket < buckets; bucket += 1) {
    if (owned.has(bucket)) continue;
    const owner = ring.firstClockwise(bucket, (worker) => {
      const count = held.get(worker)?.length ?? 0;
      return count < share || (count === share && extras > 0);
    });
    const list = owner === undefined ? undefined : held.get(owner);
    if (list?.length === share) extras -= 1;
    list?.push(bucket);
  }
  return inOrder(held, buckets);
}

/** Every worker's previous buckets in ascending order; those of the gone are left out. */
function heldBuckets(
  ids: readonly string[],
  previous: BucketOwners,
  buckets: number,
): Map<string, number[]> {
  const held = new Map<string, number[]>(ids.map((id) => [id, []]));
  for (let bucket = 0; bucket < buckets; bucket += 1) {
    const owner = previous.get(bucket);
    if (owner !== undefined) held.get(owner)?.push(bucket);
  }
  return held;
}

function inOrder(
  held: ReadonlyMap<string, readonly number[]>,
  buckets: number,
): Map<number, string> {
  const owners: (string | undefined)[] = Array.from({ length: buckets });
  for (const [worker, list] of held) for (const bucket of list) owners[bucket] = worker;
  const result = new Map<number, string>();
  for (const [bucket, owner] of owners.entries()) {
    if (owner !== undefined) result.set(bucket, owner);
  }
  return result;
}

/**
 * Takes from every worker what exceeds its share. The remainder of the division stays with workers
 * that hold more than the share already, which is what makes the moves as few as can be. Returns
 * how many may still get one bucket more than the share.
 */
function shedSurplus(
  ring: Ring,
  held: Map<string, number[]>,
  even: { readonly share: number; readonly extras: number },
): number {
  let { extras } = even;
  for (const [worker, list] of held) {
    if (list.length <= even.share) continue;
    const quota = extras > 0 ? even.share + 1 : even.share;
    if (extras > 0) extras -= 1;
    if (list.length === quota) continue;
    // What the ring would give to this worker anyway stays, so owners drift towards the ring.
    const own = list.filter((bucket) => ring.firstClockwise(bucket) === worker);
    const others = list.filter((bucket) => ring.firstClockwise(bucket) !== worker);
    held.set(worker, [...own, ...others].slice(0, quota));
  }
  return extras;
}

class Ring {
  readonly #ids: readonly string[];
  readonly #points: Float64Array;

  /** `ids` in byte order: two workers on one point are told apart by it. */
  constructor(ids: readonly string[], virtualNodes: number) {
    requireNumber("virtualNodes", virtualNodes, { min: 1, integer: true });
    requireNumber("the number of workers", ids.length, { max: WORKERS_MAX });
    this.#ids = ids;
    this.#points = new Float64Array(ids.length * virtualNodes);
    let at = 0;
    for (const [index, id] of ids.entries()) {
      for (let node = 0; node < virtualNodes; node += 1) {
        this.#points[at] = mixedHash(`${id}#${node}`) * WORKERS_MAX + index;
        at += 1;
      }
    }
    this.#points.sort();
  }

  points(): RingPoint[] {
    return Array.from(this.#points, (packed) => ({
      position: Math.floor(packed / WORKERS_MAX),
      worker: this.#workerOf(packed),
    }));
  }

  firstClockwise(bucket: number, hasRoom?: (worker: string) => boolean): string | undefined {
    const start = this.#indexAtOrAfter(bucketPosition(bucket));
    const length = this.#points.length;
    for (let step = 0; step < length; step += 1) {
      const worker = this.#workerOf(this.#points[(start + step) % length] ?? 0);
      if (hasRoom === undefined || hasRoom(worker)) return worker;
    }
    return undefined;
  }

  #workerOf(packed: number): string {
    return this.#ids[packed % WORKERS_MAX] ?? "";
  }

  #indexAtOrAfter(position: number): number {
    const wanted = position * WORKERS_MAX;
    let low = 0;
    let high = this.#points.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((this.#points[middle] ?? 0) < wanted) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

/** Where a bucket is on the ring: whose point comes next owns it, if it has room. */
export const bucketPosition = (bucket: number): number => mixedHash(`bucket:${bucket}`);

/** The ring as it is walked, sorted by position, for display. */
export function ringPoints(workers: readonly string[], virtualNodes = VIRTUAL_NODES): RingPoint[] {
  return new Ring(byBytesOnce(workers), virtualNodes).points();
}

/**
 * Which buckets would move if one worker came or went, in bucket order. The workers of now are
 * those that own something. `to` is `undefined` only when the last worker leaves.
 */
export function simulateChange(
  owners: BucketOwners,
  change: RingChange,
  options: RingOptions = {},
): BucketMove[] {
  const workers = new Set(owners.values());
  if ("join" in change) workers.add(change.join);
  else workers.delete(change.leave);
  const wanted = assignBuckets([...workers], owners, options);
  const buckets = new Set([...owners.keys(), ...wanted.keys()]);
  return [...buckets]
    .sort((a, b) => a - b)
    .flatMap((bucket) => {
      const [from, to] = [owners.get(bucket), wanted.get(bucket)];
      return from === to ? [] : [{ bucket, from, to }];
    });
}
