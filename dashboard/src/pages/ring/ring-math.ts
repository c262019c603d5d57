import {
  type BucketMove,
  type BucketOwners,
  bucketOf,
  bucketPosition,
  type RingPoint,
  ringPoints,
  simulateChange,
} from "../../../../src/cluster/ring.ts";
import type { Ring } from "../../api/types.ts";

export { BUCKETS, VIRTUAL_NODES } from "../../../../src/cluster/ring.ts";

/** Neighbouring buckets of one owner, both ends included. */
export interface Run {
  readonly from: number;
  readonly to: number;
  readonly owner: string;
}

export function ownersOf({ owners }: Ring): BucketOwners {
  return new Map(
    owners.flatMap(({ worker, buckets }) => buckets.map((bucket) => [bucket, worker] as const)),
  );
}

/** In as few pieces as can be, in the order of buckets. */
export function runsOf(owners: BucketOwners): Run[] {
  const runs: { from: number; to: number; owner: string }[] = [];
  for (const [bucket, owner] of [...owners].sort(([a], [b]) => a - b)) {
    const last = runs.at(-1);
    if (last?.owner === owner && last.to === bucket - 1) last.to = bucket;
    else runs.push({ from: bucket, to: bucket, owner });
  }
  return runs;
}

/** "0–89, 120" */
export const describeRuns = (runs: readonly Run[]): string =>
  runs.map(({ from, to }) => (from === to ? String(from) : `${from}–${to}`)).join(", ");

export type Supposed = { readonly join: string } | { readonly leave: string };

/** What would move, by the rule that the leader follows, if it used so many virtual nodes. */
export const movesOf = (
  owners: BucketOwners,
  change: Supposed,
  virtualNodes?: number,
): BucketMove[] =>
  simulateChange(owners, change, virtualNodes === undefined ? {} : { virtualNodes });

/** Buckets that go from one worker to another. */
export interface MoveGroup {
  readonly from: string | undefined;
  readonly to: string | undefined;
  readonly buckets: readonly number[];
}

export function groupMoves(moves: readonly BucketMove[]): MoveGroup[] {
  const groups = new Map<string, { from?: string; to?: string; buckets: number[] }>();
  for (const { bucket, from, to } of moves) {
    const key = JSON.stringify([from, to]);
    const group = groups.get(key) ?? {
      ...(from === undefined ? {} : { from }),
      ...(to === undefined ? {} : { to }),
      buckets: [],
    };
    group.buckets.push(bucket);
    groups.set(key, group);
  }
  return [...groups.values()]
    .map(({ from, to, buckets }) => ({ from, to, buckets }))
    .sort((a, b) => b.buckets.length - a.buckets.length);
}

const CIRCLE = 2 ** 32;

/** On the ring, as a share of its way round. */
export const turnOf = (position: number): number => position / CIRCLE;

export const turnOfBucket = (bucket: number): number => turnOf(bucketPosition(bucket));

export const pointsOf = (workers: readonly string[], virtualNodes: number): RingPoint[] =>
  ringPoints(workers, virtualNodes);

/**
 * How many buckets the ring alone would give to the emptiest and the fullest worker: each to the
 * next point clockwise, with no regard to how much that worker has.
 */
export function plainSpread(points: readonly RingPoint[], buckets: number): [number, number] {
  const counts = new Map(points.map(({ worker }) => [worker, 0]));
  for (let bucket = 0; bucket < buckets; bucket += 1) {
    const owner = nextPoint(points, bucketPosition(bucket))?.worker;
    if (owner !== undefined) counts.set(owner, (counts.get(owner) ?? 0) + 1);
  }
  const all = [...counts.values()];
  return all.length === 0 ? [0, 0] : [Math.min(...all), Math.max(...all)];
}

/** The first at or behind a position; the points are in order. */
export function nextPoint(points: readonly RingPoint[], position: number): RingPoint | undefined {
  let [low, high] = [0, points.length];
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((points[middle]?.position ?? 0) < position) low = middle + 1;
    else high = middle;
  }
  return points[low] ?? points[0];
}

export const bucketOfKey = (key: string): number => bucketOf(key);

/** A point on a circle, clockwise from the top; the whole circle is `of`. */
export function pointAt(place: number, of: number, radius: number): readonly [number, number] {
  const angle = (place / of) * 2 * Math.PI - Math.PI / 2;
  return [radius * Math.cos(angle), radius * Math.sin(angle)];
}

/** The outline of a piece of a ring, as a path of SVG. */
export function pieceOf(
  { from, to }: Pick<Run, "from" | "to">,
  of: number,
  [inner, outer]: readonly [number, number],
): string {
  // A whole circle as one arc would begin where it ends, and be none.
  const end = Math.min(to + 1, from + of - 0.05);
  const isLarge = end - from > of / 2 ? 1 : 0;
  const text = (point: readonly [number, number]): string =>
    point.map((value) => value.toFixed(2)).join(" ");
  return [
    `M${text(pointAt(from, of, outer))}`,
    `A${outer} ${outer} 0 ${isLarge} 1 ${text(pointAt(end, of, outer))}`,
    `L${text(pointAt(end, of, inner))}`,
    `A${inner} ${inner} 0 ${isLarge} 0 ${text(pointAt(from, of, inner))}Z`,
  ].join("");
}

const COLORS = [
  "#3b82c4",
  "#d07a2d",
  "#4c9a5b",
  "#c0616c",
  "#8a6fd1",
  "#98813a",
  "#2f9696",
  "#c25fa8",
  "#78869a",
  "#7d9a2c",
] as const;

/** Each worker's colour; those of more than ten are used again, and names tell them apart. */
export function colorsOf(workers: readonly string[]): ReadonlyMap<string, string> {
  const sorted = [...new Set(workers)].sort();
  return new Map(sorted.map((worker, at) => [worker, COLORS[at % COLORS.length] ?? COLORS[0]]));
}
