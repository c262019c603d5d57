import { createHash } from "node:crypto";
import { ConflictError, type TidemillError, UnavailableError } from "../base/errors.ts";
import type { Queryable } from "../db/database.ts";
import type { BucketOwners } from "./directory.ts";
import type { EncodedTask } from "./encode.ts";
import { mayPackKeyed, type PackPlan, toPacks } from "./packing.ts";
import { insertTask, insertTasks, lockKeys, type TaskShape } from "./sql/enqueue.ts";
import {
  forgetIdempotencyKeys,
  type IdempotencyKey,
  readIdempotencyKeys,
  readLiveIdempotencyKeys,
  takeIdempotencyKeys,
} from "./sql/idempotency.ts";
import { keyedPackLane } from "./sql/key-packs.ts";
import { insertPacks } from "./sql/packs.ts";
import { bucketOfLane } from "./task.ts";

/** The idempotency key was used before for another task. Use another key, or the same task. */
export class IdempotencyConflictError extends ConflictError {
  override readonly code = "TM_IDEMPOTENCY_CONFLICT";
}

/** Tasks of one tenant that were given together. */
export interface Bulk {
  readonly tasks: readonly EncodedTask[];
  /** All of them or none. */
  readonly isAtomic: boolean;
}

/** The id of a task, or why it was not stored. */
export type StoreResult = string | TidemillError;

/** Who owns which buckets of a key space, as it was a moment ago. */
export type OwnersOf = (keySpaceId: number) => Promise<BucketOwners>;

/**
 * Stores bulks of any tenants and queues in the caller's transaction, and gives one result per task
 * in their order. Two bulks must not have an idempotency key of one tenant in common: which of them
 * comes first would depend on whether the other stands.
 */
export async function storeBulks(
  tx: Queryable,
  bulks: readonly Bulk[],
  ownersOf: OwnersOf,
): Promise<StoreResult[][]> {
  const all = bulks.flatMap(({ tasks }) => tasks);
  await lockSerialKeys(tx, all);
  if (all.every((task) => task.idempotency === undefined)) {
    const ids = await insertGroups(tx, all, ownersOf);
    for (let place = 0; place < all.length; place += 1) given(ids[place]);
    let next = 0;
    return bulks.map(({ tasks }) => ids.slice(next, (next += tasks.length)));
  }
  return await storeOnce(tx, bulks, ownersOf);
}

/** In one order for everybody, or two callers wait for each other. */
export async function lockSerialKeys(tx: Queryable, tasks: readonly EncodedTask[]): Promise<void> {
  const spaces = new Map<number, Set<string>>();
  for (const { isSerial, key, shape } of tasks) {
    if (!isSerial) continue;
    const { keySpaceId } = bucketOfLane(shape.lane);
    const keys = spaces.get(keySpaceId);
    if (keys === undefined) spaces.set(keySpaceId, new Set([key]));
    else keys.add(key);
  }
  for (const [id, keys] of [...spaces].sort(([a], [b]) => a - b)) {
    await lockKeys(tx, id, [...keys].sort());
  }
}

/**
 * Stores those whose key is new and finds the others. Keys are taken before tasks are written, in
 * one order for everybody, so that two calls with the same keys wait for each other, not for ever.
 */
async function storeOnce(
  tx: Queryable,
  bulks: readonly Bulk[],
  ownersOf: OwnersOf,
): Promise<StoreResult[][]> {
  const firsts = new Map<string, IdempotencyKey>();
  for (const { tasks } of bulks) {
    for (const task of tasks) {
      const key = keyOf(task);
      if (key !== undefined && !firsts.has(key.id)) firsts.set(key.id, key);
    }
  }
  const holders = await takeKeys(tx, [...firsts.values()]);
  const conflicts = new Map<EncodedTask, IdempotencyConflictError>();
  const left: string[] = [];
  const fresh: EncodedTask[] = [];
  const drawn: string[] = [];
  const isDealtWith = new Set<string>();
  for (const { tasks, isAtomic } of bulks) {
    const refused = tasks.map((task) => conflictOf(task, holders));
    const first = refused.find((one) => one !== undefined);
    tasks.forEach((task, place) => {
      const key = keyOf(task);
      const holder = key === undefined ? undefined : holders.get(key.id);
      const conflict = refused[place] ?? (isAtomic ? first : undefined);
      if (conflict !== undefined) {
        conflicts.set(task, conflict);
        // The caller may commit all the same: no key may point to nothing.
        if (isAtomic && holder?.isNew === true) left.push(holder.taskId);
      } else if (key === undefined || holder === undefined) {
        fresh.push(task);
        drawn.push("NULL");
      } else if (holder.isNew && !isDealtWith.has(key.id)) {
        isDealtWith.add(key.id);
        fresh.push(task);
        drawn.push(holder.taskId);
      }
    });
  }
  if (left.length > 0) await forgetIdempotencyKeys(tx, left);
  const inserted = fresh.length === 0 ? [] : await insertGroups(tx, fresh, ownersOf, drawn);
  const ids = new Map(fresh.map((task, index) => [task, inserted[index]]));
  const resultOf = (task: EncodedTask): StoreResult =>
    conflicts.get(task) ?? given(ids.get(task) ?? holders.get(keyOf(task)?.id ?? "")?.taskId);
  return bulks.map(({ tasks }) => tasks.map(resultOf));
}

/** The ids of tasks that are stored already, by their keys; undefined unless all of them are. */
export async function findStored(
  db: Queryable,
  tasks: readonly EncodedTask[],
): Promise<string[] | undefined> {
  const given = tasks.flatMap((task) => keyOf(task) ?? []);
  if (given.length < tasks.length) return undefined;
  const found = await readLiveIdempotencyKeys(db, given);
  const ids = new Map(found.map(({ id, hash, taskId }) => [`${id} ${hash}`, taskId]));
  const stored = given.flatMap(({ id, hash }) => ids.get(`${id} ${hash}`) ?? []);
  return stored.length === tasks.length ? stored : undefined;
}

/** No answer may have an empty id: somebody would believe that something was stored. */
function given(id: string | undefined): string {
  if (id === undefined || id === "") throw new Error("a task was stored without an id");
  return id;
}

/** Which task has the key now. */
interface KeyHolder {
  readonly taskId: string;
  readonly hash: string;
  /** Taken just now: its task is not written yet. */
  readonly isNew: boolean;
}

const TAKE_TRIES = 5;

async function takeKeys(
  tx: Queryable,
  keys: readonly IdempotencyKey[],
): Promise<Map<string, KeyHolder>> {
  const sorted = keys.toSorted((a, b) => (a.id < b.id ? -1 : 1));
  const hashes = new Map(keys.map(({ id, hash }) => [id, hash]));
  const holders = new Map<string, KeyHolder>();
  for (let tries = 0; tries < TAKE_TRIES; tries += 1) {
    const open = sorted.filter(({ id }) => !holders.has(id));
    if (open.length === 0) return holders;
    for (const { id, taskId } of await takeIdempotencyKeys(tx, open)) {
      holders.set(id, { taskId, hash: hashes.get(id) ?? "", isNew: true });
    }
    const missing = open.filter(({ id }) => !holders.has(id));
    if (missing.length === 0) return holders;
    // A later statement: who held the key meanwhile is visible to it. A key that expired and was
    // removed in between is taken in the next round.
    for (const { id, taskId, hash } of await readIdempotencyKeys(tx, missing)) {
      holders.set(id, { taskId, hash, isNew: false });
    }
  }
  if (sorted.every(({ id }) => holders.has(id))) return holders;
  throw new UnavailableError("an idempotency key expired again and again while it was taken");
}

function conflictOf(
  task: EncodedTask,
  holders: ReadonlyMap<string, KeyHolder>,
): IdempotencyConflictError | undefined {
  const key = keyOf(task);
  if (key === undefined || holders.get(key.id)?.hash === key.hash) return undefined;
  return new IdempotencyConflictError(
    `idempotency key ${JSON.stringify(key.key)} was used for another task: the queue, the ` +
      "payload or an option differs",
  );
}

const keys = new WeakMap<EncodedTask, IdempotencyKey>();

/** The key with a hash of everything that makes the task what it is. */
function keyOf(task: EncodedTask): IdempotencyKey | undefined {
  if (task.idempotency === undefined) return undefined;
  const known = keys.get(task);
  if (known !== undefined) return known;
  const { key, seconds, given: options } = task.idempotency;
  const { tenant } = task.shape;
  const hash = createHash("sha256")
    .update(JSON.stringify([options, task.key]))
    .update(task.payload)
    .digest("base64url");
  const made = { id: JSON.stringify([tenant, key]), tenant, key, hash, seconds };
  keys.set(task, made);
  return made;
}

/** What must keep its order among itself: a lane, or a key space. */
const lineOf = ({ key, shape }: EncodedTask): number =>
  key === "" ? shape.lane : -1 - bucketOfLane(shape.lane).keySpaceId;

/** By line: where its tasks are. */
function linesOf(tasks: readonly EncodedTask[]): Map<number, number[]> {
  const lines = new Map<number, number[]>();
  let last = Number.NaN;
  let places: number[] = [];
  for (const [place, task] of tasks.entries()) {
    const line = lineOf(task);
    if (line !== last) {
      last = line;
      places = lines.get(line) ?? [];
      lines.set(line, places);
    }
    places.push(place);
  }
  return lines;
}

/**
 * One statement for all rows, and one for each line whose tasks are alike and may wait in packs. A
 * line goes one way as a whole, because numbers are drawn statement by statement.
 */
async function insertGroups(
  tx: Queryable,
  tasks: readonly EncodedTask[],
  ownersOf: OwnersOf,
  drawn: readonly string[] = [],
): Promise<string[]> {
  const lines = linesOf(tasks);
  const ids: string[] = [];
  const inRows: number[] = [];
  for (const [line, places] of lines) {
    const group = lines.size === 1 ? tasks : places.flatMap((place) => tasks[place] ?? []);
    const owners = mayPackKeyed(group) ? await ownersOf(-1 - line) : undefined;
    const packs = toPacks(group, owners);
    if (packs === undefined) {
      for (const place of places) inRows.push(place);
      continue;
    }
    const placed = await insertInPacks(tx, group, packs);
    if (lines.size === 1) return placed;
    places.forEach((place, index) => {
      ids[place] = placed[index] ?? "";
    });
  }
  if (inRows.length === 0) return ids;
  inRows.sort((a, b) => a - b);
  const rows = inRows.flatMap((place) => tasks[place] ?? []);
  const numbers = drawn.length === 0 ? [] : inRows.map((place) => drawn[place] ?? "NULL");
  const inserted = await insertRows(tx, rows, numbers);
  inRows.forEach((place, index) => {
    ids[place] = inserted[index] ?? "";
  });
  return ids;
}

/** Each task as a row, in one statement. `ids` are those that were drawn before, or empty. */
export async function insertRows(
  db: Queryable,
  tasks: readonly EncodedTask[],
  ids: readonly string[] = [],
): Promise<string[]> {
  const [only] = tasks;
  if (only !== undefined && tasks.length === 1) {
    return await insertTask(db, { ...only, id: ids[0] ?? "NULL" });
  }
  const shapes = new Map<EncodedTask["shape"], TaskShape>();
  const numbers = tasks.map(({ shape }) => {
    let numbered = shapes.get(shape);
    if (numbered === undefined) {
      numbered = { ...shape, shape: shapes.size + 1, count: 0 };
      shapes.set(shape, numbered);
    }
    numbered.count += 1;
    return numbered.shape;
  });
  const isKeyed = tasks.some((task) => task.key !== "");
  const rows = {
    payloads: tasks.map((task) => task.payload),
    keys: isKeyed ? tasks.map((task) => task.key) : [],
    buckets: isKeyed ? tasks.map((task) => task.bucket ?? ("NULL" as const)) : [],
    shapes: shapes.size === 1 ? [] : numbers,
    ids,
  };
  return await insertTasks(db, rows, [...shapes.values()]);
}

/** Like tasks as a few rows, in one statement. Ids are in the order of the tasks. */
export async function insertInPacks(
  db: Queryable,
  tasks: readonly EncodedTask[],
  packs: readonly PackPlan[],
): Promise<string[]> {
  const [first] = tasks;
  if (first === undefined) return [];
  const { shape, key } = first;
  const lane = key === "" ? shape.lane : keyedPackLane(bucketOfLane(shape.lane).keySpaceId);
  const ids = await insertPacks(db, packs, { ...shape, lane });
  const placed = tasks.map(() => "");
  let drawn = 0;
  for (const { places } of packs) {
    for (const place of places) placed[place] = ids[drawn++] ?? "";
  }
  return placed;
}
