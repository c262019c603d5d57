import { PACK_TASKS_MAX } from "./claimed-pack.ts";
import type { BucketOwners } from "./directory.ts";
import type { EncodedTask } from "./encode.ts";
import type { NewPack } from "./sql/packs.ts";

/** Fewer are not worth it: a pack must be opened before one of its tasks can go its own way. */
const PACKED_MIN = 20;
/** Of payloads, in characters. What is larger gains nothing from company. */
const PACK_LENGTH_MAX = 64 * 1024;

/** A pack to be stored, and where its tasks were in the call. */
export interface PackPlan extends NewPack {
  readonly places: readonly number[];
}

/** How the tasks may wait as a few rows; undefined when each must have its own. */
export function toPacks(
  tasks: readonly EncodedTask[],
  owners: BucketOwners | undefined,
): PackPlan[] | undefined {
  if (!areAlike(tasks)) return undefined;
  const isKeyed = tasks[0]?.key !== "";
  const groups = isKeyed ? byKey(tasks, owners) : inRuns(tasks);
  if (tasks.length < PACKED_MIN * groups.length) return undefined;
  const packs = groups.map((places): PackPlan => {
    const of = places.flatMap((place) => tasks[place] ?? []);
    const payloads = of.map((task) => task.payload);
    if (!isKeyed) return { places, payloads };
    const buckets = of.map((task) => task.bucket ?? 0);
    return { places, payloads, keys: of.map((task) => task.key), buckets };
  });
  return packs.every(isSmall) ? packs : undefined;
}

/** Whether it matters who owns which buckets. */
export function mayPackKeyed(tasks: readonly EncodedTask[]): boolean {
  return tasks[0]?.key !== "" && areAlike(tasks);
}

/** But for payloads and keys. Bytes and what waits for its time are rows. */
function areAlike(tasks: readonly EncodedTask[]): boolean {
  const [first] = tasks;
  if (first === undefined || tasks.length < PACKED_MIN) return false;
  const { shape } = first;
  const isKeyed = first.key !== "";
  if (shape.is_binary === true || shape.run_at !== undefined || shape.delay !== undefined) {
    return false;
  }
  return tasks.every(
    (task) =>
      task.shape === shape && (task.key !== "") === isKeyed && task.idempotency === undefined,
  );
}

function isSmall({ payloads }: PackPlan): boolean {
  return payloads.reduce((sum, payload) => sum + payload.length, 0) <= PACK_LENGTH_MAX;
}

/** One after another, in packs of the same size. */
function inRuns(tasks: readonly EncodedTask[]): number[][] {
  const count = Math.ceil(tasks.length / PACK_TASKS_MAX);
  const size = Math.ceil(tasks.length / count);
  const places = Array.from(tasks.keys());
  return Array.from({ length: count }, (_, run) => places.slice(run * size, (run + 1) * size));
}

/**
 * Each owner's tasks apart, because a worker takes a pack only when all of its buckets are its own.
 * No key comes twice in a pack, and tasks of one key are in packs in their order.
 */
function byKey(tasks: readonly EncodedTask[], owners: BucketOwners | undefined): number[][] {
  const packs: number[][] = [];
  /** By owner: the first of its packs that has room. */
  const open = new Map<number, number[]>();
  /** By key: in which pack of its owner it came last. */
  const last = new Map<string, number>();
  for (const [place, { key, bucket = 0 }] of tasks.entries()) {
    const owner = owners?.[bucket] ?? 0;
    let own = open.get(owner);
    if (own === undefined) open.set(owner, (own = []));
    let at = (last.get(key) ?? -1) + 1;
    while ((packs[own[at] ?? -1]?.length ?? 0) >= PACK_TASKS_MAX) at += 1;
    if (own[at] === undefined) {
      own[at] = packs.length;
      packs.push([]);
    }
    packs[own[at] ?? 0]?.push(place);
    last.set(key, at);
  }
  return packs;
}
