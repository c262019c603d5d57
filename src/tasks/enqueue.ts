import { CommitUnknownError, InvalidInputError, messageOf, TidemillError } from "../base/errors.ts";
import { activeTrace, type TraceContext } from "../base/trace-context.ts";
import type { Queryable, Store } from "../db/database.ts";
import type { SqlExecutor } from "../db/executor.ts";
import type { Notifier } from "../db/notifier.ts";
import { notify } from "../db/sql/session.ts";
import { mapDatabaseError } from "../db/sqlstate.ts";
import type { BucketOwners, KnownQueue, QueueDirectory } from "./directory.ts";
import { type EncodedTask, TaskEncoder } from "./encode.ts";
import type { NewTask } from "./new-task.ts";
import { mayPackKeyed, toPacks } from "./packing.ts";
import type { QueueDefinition } from "./queue.ts";
import { QuotaError } from "./quota.ts";
import type { Settle } from "./quota-keeper.ts";
import { findStored, insertInPacks, insertRows, storeBulks } from "./store.ts";
import { bucketOfLane } from "./task.ts";

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
  /** For a tenant with a quota: lets tasks in, or throws. Is told whether they were stored. */
  readonly meter?: (tasks: readonly EncodedTask[]) => Promise<Settle>;
}

/** Stores tasks of one queue, all of them or none, and gives their ids in order. */
export async function enqueueTasks(
  context: EnqueueContext,
  queue: QueueDefinition | string,
  tasks: readonly NewTask[],
  { tx }: EnqueueOptions,
): Promise<string[]> {
  if (tasks.length === 0) return [];
  const known = await findFor(context.directory, queue, tasks);
  const over = tx === undefined ? undefined : context.db.over(tx);
  const isMetered = context.meter !== undefined;
  const encoder = new TaskEncoder(context.directory, known, over, isMetered);
  const trace = activeTrace();
  const encoded: EncodedTask[] = [];
  for (const task of tasks) {
    try {
      const one = encoder.encode(inherit(task, trace));
      encoded.push(one instanceof Promise ? await one : one);
    } catch (error) {
      throw tasks.length === 1 ? error : atIndex(error, encoded.length);
    }
  }
  const isOnce = encoded.some((task) => task.idempotency !== undefined);
  const isMany = isOnce || known.settings.serialize;
  const owners = await ownersFor(context.directory, encoded);
  const settle = await admit(context, encoded, over ?? context.db);
  if (Array.isArray(settle)) return settle;
  const insert = async (db: Queryable): Promise<string[]> =>
    isMany ? await insertOnce(context, db, encoded) : await insertAll(db, encoded, owners);
  let isStored = true;
  try {
    if (over !== undefined) {
      const ids = await insert(over);
      // Without a payload, PostgreSQL folds all enqueues of one transaction into one notification.
      await notify(over, context.channel, "");
      return ids;
    }
    // Several statements must stand or fall together, and none of them is to wait for the lock that
    // a notification takes in a transaction.
    if (isMany || context.db.isWalled) {
      const ids = await context.db.transaction(insert);
      context.notifier.ring();
      return ids;
    }
    return await context.db.withConnection((connection) =>
      context.notifier.announce(connection, () => insert(connection)),
    );
  } catch (error) {
    isStored = error instanceof CommitUnknownError;
    throw mapDatabaseError(error, `enqueue to "${known.name}"`);
  } finally {
    settle?.(isStored);
  }
}

/** Lets them in; at the quota, the ids of those that are a repetition of what is stored. */
async function admit(
  { meter }: EnqueueContext,
  tasks: readonly EncodedTask[],
  db: Queryable,
): Promise<Settle | string[] | undefined> {
  try {
    return await meter?.(tasks);
  } catch (error) {
    const ids = error instanceof QuotaError ? await findStored(db, tasks) : undefined;
    if (ids === undefined) throw error;
    return ids;
  }
}

/** A task that names no trace belongs to that of its caller. */
function inherit(task: NewTask, trace: TraceContext): NewTask {
  const { traceParent, traceState } = trace;
  if (traceParent === undefined || task.traceParent !== undefined) return task;
  return { ...task, traceParent, ...(traceState === undefined ? {} : { traceState }) };
}

/** A key may wait in the queue's key space only when no definition changes that any more. */
async function findFor(
  directory: QueueDirectory,
  queue: QueueDefinition | string,
  tasks: readonly NewTask[],
): Promise<KnownQueue> {
  const known = await directory.find(queue);
  const isKeyed = known.isOpen && tasks.some(({ partitionKey }) => partitionKey !== undefined);
  return isKeyed ? await directory.withSettledKeys(known) : known;
}

/** Who will take which of the tasks, when they may wait in packs. */
async function ownersFor(
  directory: QueueDirectory,
  tasks: readonly EncodedTask[],
): Promise<BucketOwners | undefined> {
  const [first] = tasks;
  if (first === undefined || !mayPackKeyed(tasks)) return undefined;
  return await directory.owners(bucketOfLane(first.shape.lane).keySpaceId);
}

/** One statement: it stands or falls alone. */
async function insertAll(
  db: Queryable,
  tasks: readonly EncodedTask[],
  owners: BucketOwners | undefined,
): Promise<string[]> {
  const packs = toPacks(tasks, owners);
  return packs === undefined ? await insertRows(db, tasks) : await insertInPacks(db, tasks, packs);
}

/** Several statements, which must stand or fall together. */
async function insertOnce(
  { directory }: EnqueueContext,
  db: Queryable,
  tasks: readonly EncodedTask[],
): Promise<string[]> {
  const bulk = { tasks, isAtomic: true };
  const [results = []] = await storeBulks(db, [bulk], (id) => directory.owners(id));
  return results.map((result) => {
    if (typeof result !== "string") throw result;
    return result;
  });
}

/** Says which of many is wrong. That the database is away, for one, says nothing about the task. */
function atIndex(error: unknown, index: number): unknown {
  if (error instanceof TidemillError && error.retryable) return error;
  return new InvalidInputError(`task ${index}: ${messageOf(error)}`, { cause: error });
}
