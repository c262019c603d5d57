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
  const packs = groups.map((places) => planOf(tasks, places, isKeyed));
  return packs.every(isSmall) ? packs : undefined;
}

function planOf(
  tasks: readonly EncodedTask[],
  places: readonly number[],
  isKeyed: boolean,
): PackPlan {
  const payloads: string[] = [];
  const keys: string[] = [];
  const buckets: number[] = [];
  for (const place of places) {
    const task = tasks[place];
    if (task === undefined) continue;
    payloads.push(task.payload);
    if (!isKeyed) continue;
    keys.push(task.key);
    buckets.push(task.bucket ?? 0);
  }
  return isKeyed ? { places, payloads, keys, buckets } : { places, payloads };
}

/** Whether it may matter who owns which buckets. */
export function mayPackKeyed(tasks: readonly EncodedTask[]): boolean {
  return tasks.length >= PACKED_MIN && tasks[0]?.key !== "";
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

/** The packs for one owner. */
interface OwnerLine {
  readonly packs: number[][];
  /** Those before it are full. */
  roomAt: number;
}

const isFull = (pack: readonly number[] | undefined): boolean =>
  pack !== undefined && pack.length >= PACK_TASKS_MAX;

/**
 * Each owner's tasks apart, because a worker takes a pack only when all of its buckets are its own.
 * No key comes twice in a pack, and tasks of one key are in packs in their order.
 */
function byKey(tasks: readonly EncodedTask[], owners: BucketOwners | undefined): number[][] {
  const packs: number[][] = [];
  const lines = new Map<number, OwnerLine>();
  /** By key: in which pack of its owner it came last. */
  const last = new Map<string, number>();
  tasks.forEach(({ key, bucket = 0 }, place) => {
    const owner = owners?.[bucket] ?? 0;
    let line = lines.get(owner);
    if (line === undefined) lines.set(owner, (line = { packs: [], roomAt: 0 }));
    let at = Math.max(line.roomAt, (last.get(key) ?? -1) + 1);
    while (isFull(line.packs[at])) at += 1;
    let pack = line.packs[at];
    if (pack === undefined) {
      line.packs.push((pack = []));
      packs.push(pack);
    }
    pack.push(place);
    last.set(key, at);
    while (isFull(line.packs[line.roomAt])) line.roomAt += 1;
  });
  return packs;
}
