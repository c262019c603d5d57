import { createHash } from "node:crypto";
import { ConflictError, InvalidInputError, messageOf, TidemillError } from "../base/errors.ts";
import type { Queryable, SqlExecutor, Store } from "../db/database.ts";
import type { Notifier } from "../db/notifier.ts";
import { notify } from "../db/sql/session.ts";
import { mapDatabaseError } from "../db/sqlstate.ts";
import type { BucketOwners, KnownQueue, QueueDirectory } from "./directory.ts";
import { type EncodedTask, type NewTask, TaskEncoder } from "./encode.ts";
import { mayPackKeyed, type PackPlan, toPacks } from "./packing.ts";
import type { QueueDefinition } from "./queue.ts";
import { insertTasks, lockKeys, type TaskShape } from "./sql/enqueue.ts";
import {
  forgetIdempotencyKeys,
  type IdempotencyKey,
  readIdempotencyKeys,
  takeIdempotencyKeys,
} from "./sql/idempotency.ts";
import { keyedPackLane } from "./sql/key-packs.ts";
import { insertPacks } from "./sql/packs.ts";
import { bucketOfLane } from "./task.ts";

/** The idempotency key was used before for another task. Use another key, or the same task. */
export class IdempotencyConflictError extends ConflictError {
  override readonly code = "TM_IDEMPOTENCY_CONFLICT";
}

export interface EnqueueOptions {
  /** The caller's own transaction: the tasks exist when it commits. */
  readonly tx?: SqlExecutor;
}

export interface EnqueueContext {
  readonly db: Store;
  readonly directory: QueueDirectory;
  /** Where workers are told that there is work. */
  readonly channel: string;
  readonly notifier: Notifier;
}

/** Stores tasks of one queue, all of them or none, and gives their ids in order. */
export async function enqueueTasks(
  context: EnqueueContext,
  queue: QueueDefinition | string,
  tasks: readonly NewTask[],
  { tx }: EnqueueOptions,
): Promise<string[]> {
  if (tasks.length === 0) return [];
  const known = await context.directory.find(queue);
  const over = tx === undefined ? undefined : context.db.over(tx);
  const encoder = new TaskEncoder(context.directory, known, over);
  const encoded: EncodedTask[] = [];
  for (const task of tasks) {
    try {
      const one = encoder.encode(task);
      encoded.push(one instanceof Promise ? await one : one);
    } catch (error) {
      throw tasks.length === 1 ? error : atIndex(error, encoded.length);
    }
  }
  const isOnce = encoded.some((task) => task.idempotency !== undefined);
  const owners = await ownersFor(context.directory, known, encoded);
  const insert = async (db: Queryable): Promise<string[]> => {
    if (known.settings.serialize) {
      const keys = new Set(encoded.map((task) => task.key).filter((key) => key !== ""));
      if (keys.size > 0) await lockKeys(db, known.keySpaceId, [...keys].sort());
    }
    return isOnce ? await enqueueOnce(db, encoded) : await insertAll(db, encoded, { owners });
  };
  try {
    if (over !== undefined) {
      const ids = await insert(over);
      // Without a payload, PostgreSQL folds all enqueues of one transaction into one notification.
      await notify(over, context.channel, "");
      return ids;
    }
    // Several statements must stand or fall together, and none of them is to wait for the lock that
    // a notification takes in a transaction.
    if (isOnce || known.settings.serialize || context.db.isWalled) {
      const ids = await context.db.transaction(insert);
      context.notifier.ring();
      return ids;
    }
    return await context.db.withConnection((connection) =>
      context.notifier.announce(connection, () => insert(connection)),
    );
  } catch (error) {
    throw mapDatabaseError(error, `enqueue to "${known.name}"`);
  }
}

/** Who will take which of the tasks, when they may wait in packs. */
async function ownersFor(
  directory: QueueDirectory,
  { keySpaceId }: KnownQueue,
  tasks: readonly EncodedTask[],
): Promise<BucketOwners | undefined> {
  return mayPackKeyed(tasks) ? await directory.owners(keySpaceId) : undefined;
}

interface InsertOptions {
  /** Drawn before, for tasks that have one. */
  readonly ids?: readonly string[];
  /** Of the buckets of the key space. */
  readonly owners?: BucketOwners | undefined;
}

async function insertAll(
  db: Queryable,
  tasks: readonly EncodedTask[],
  { ids = [], owners }: InsertOptions = {},
): Promise<string[]> {
  const packs = ids.length === 0 ? toPacks(tasks, owners) : undefined;
  if (packs !== undefined) return await insertInPacks(db, tasks, packs);
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

/** Ids in the order of the tasks. */
async function insertInPacks(
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

/** Says which of many is wrong. That the database is away, for one, says nothing about the task. */
function atIndex(error: unknown, index: number): unknown {
  if (error instanceof TidemillError && error.retryable) return error;
  return new InvalidInputError(`task ${index}: ${messageOf(error)}`, { cause: error });
}

/**
 * Stores those whose key is new and finds the others. Keys are taken before tasks are written, in
 * one order for everybody, so that two calls with the same keys wait for each other, not for ever.
 */
async function enqueueOnce(db: Queryable, tasks: readonly EncodedTask[]): Promise<string[]> {
  const firsts = new Map<string, IdempotencyKey>();
  for (const task of tasks) {
    const one = keyOf(task);
    if (one === undefined) continue;
    const first = firsts.get(one.id);
    if (first === undefined) firsts.set(one.id, one);
    else if (first.hash !== one.hash) throw conflict(one.key);
  }
  const ids = await takeKeys(db, [...firsts.values()]);
  const isFirst = new Set<string>();
  const fresh = tasks.filter((task) => {
    const id = keyOf(task)?.id;
    if (id === undefined) return true;
    const isNew = ids.taken.has(id) && !isFirst.has(id);
    isFirst.add(id);
    return isNew;
  });
  const drawn = fresh.map((task) => ids.taken.get(keyOf(task)?.id ?? "") ?? "NULL");
  const inserted = fresh.length === 0 ? [] : await insertAll(db, fresh, { ids: drawn });
  const idOf = new Map(fresh.map((task, index) => [task, inserted[index] ?? ""]));
  return tasks.map((task) => {
    const id = keyOf(task)?.id ?? "";
    return idOf.get(task) ?? ids.taken.get(id) ?? ids.found.get(id) ?? "";
  });
}

interface TakenKeys {
  readonly taken: Map<string, string>;
  readonly found: Map<string, string>;
}

const TAKE_TRIES = 5;

async function takeKeys(db: Queryable, keys: readonly IdempotencyKey[]): Promise<TakenKeys> {
  const sorted = keys.toSorted((a, b) => (a.id < b.id ? -1 : 1));
  const taken = new Map<string, string>();
  const found = new Map<string, string>();
  for (let tries = 0; tries < TAKE_TRIES; tries += 1) {
    const open = sorted.filter(({ id }) => !taken.has(id) && !found.has(id));
    if (open.length === 0) break;
    for (const { id, taskId } of await takeIdempotencyKeys(db, open)) taken.set(id, taskId);
    // A later statement: who held the key meanwhile is visible to it. A key that expired and was
    // removed in between is taken in the next round.
    for (const other of await readIdempotencyKeys(db, open)) {
      if (taken.has(other.id)) continue;
      const mine = open.find(({ id }) => id === other.id);
      if (mine !== undefined && mine.hash !== other.hash) {
        // The caller may commit its transaction all the same: no key may point to nothing.
        await forgetIdempotencyKeys(db, [...taken.values()]);
        throw conflict(mine.key);
      }
      found.set(other.id, other.taskId);
    }
  }
  return { taken, found };
}

function conflict(key: string): IdempotencyConflictError {
  return new IdempotencyConflictError(
    `idempotency key ${JSON.stringify(key)} was used for another task: the queue, the payload or ` +
      "an option differs",
  );
}

const keys = new WeakMap<EncodedTask, IdempotencyKey>();

/** The key with a hash of everything that makes the task what it is. */
function keyOf(task: EncodedTask): IdempotencyKey | undefined {
  if (task.idempotency === undefined) return undefined;
  const known = keys.get(task);
  if (known !== undefined) return known;
  const { lane: _lane, ...shape } = task.shape;
  const hash = createHash("sha256")
    .update(JSON.stringify([shape, task.key]))
    .update(task.payload)
    .digest("base64url");
  const { key, seconds } = task.idempotency;
  const made = {
    id: JSON.stringify([shape.tenant, key]),
    tenant: shape.tenant,
    key,
    hash,
    seconds,
  };
  keys.set(task, made);
  return made;
}
