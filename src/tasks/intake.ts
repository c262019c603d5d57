import type { JsonText } from "../base/json-text.ts";
import type { Database } from "../db/database.ts";
import { setLockTimeout } from "../db/sql/session.ts";
import { mapDatabaseError } from "../db/sqlstate.ts";
import type { KnownQueue } from "./directory.ts";
import { type EncodedTask, TaskEncoder } from "./encode.ts";
import type { EnqueueContext } from "./enqueue.ts";
import type { TaskMetrics } from "./metrics.ts";
import type { TaskOptions } from "./new-task.ts";
import { amountOf } from "./quota.ts";
import type { QuotaKeeper, Settle } from "./quota-keeper.ts";
import { type Bulk, findStored, type StoreResult, storeBulks } from "./store.ts";

export interface IntakeOptions {
  /** Queues that one tenant may introduce and nobody has defined. */
  readonly queuesMax: number;
  readonly metrics: TaskMetrics;
  readonly quotas: QuotaKeeper;
  /** Something was committed: workers of this process may look. */
  readonly onStored: () => void;
}

/** Whether it may have to wait for another transaction that has its key. */
export const waitsForKey = ({ isSerial, idempotency }: EncodedTask): boolean =>
  isSerial || idempotency !== undefined;

/** Somebody else's transaction may hold a key; many others would wait behind it. */
const LOCK_PATIENCE_MS = 500;
/** Of one queue. Delays and dates make new ones all the time. */
const SHAPES_MAX = 1_000;
/** Encoders are cheap to make again. */
const ENCODERS_MAX = 10_000;

/**
 * The way in for those who enqueue for others: tasks of many tenants and queues are checked one by
 * one, and stored together. A queue that nobody defined is introduced by its first task.
 */
export class TaskIntake {
  readonly #context: EnqueueContext;
  readonly #db: Database;
  readonly #options: IntakeOptions;
  readonly #encoders = new Map<string, { queue: KnownQueue; encoder: TaskEncoder }>();

  /** @param db of its own, so that nobody else's wait for a connection delays a commit */
  constructor(context: EnqueueContext, db: Database, options: IntakeOptions) {
    this.#context = context;
    this.#db = db;
    this.#options = options;
  }

  /**
   * Checks a task and writes it down. Most need nothing that must be waited for. The tenant of the
   * task is whoever `tenant` says. Who gives the same options again gets it sooner.
   */
  encode(
    tenant: string,
    queue: string,
    payload: JsonText | Uint8Array,
    options: TaskOptions,
  ): EncodedTask | Promise<EncodedTask> {
    const known = this.#context.directory.peek(queue);
    const isKeyed = options.partitionKey !== undefined;
    const isMetered = this.#options.quotas.isMetered(tenant);
    if (known === undefined || (isKeyed && known.isOpen)) {
      return this.#find(tenant, queue, isKeyed).then((found) =>
        this.#encoderOf(found, isMetered).encode({ ...options, payload, tenant }),
      );
    }
    return this.#encoderOf(known, isMetered).encodeAs(tenant, options, payload);
  }

  /** As `QuotaKeeper.admit`, for tasks of one tenant. */
  admit(tenant: string, tasks: readonly EncodedTask[]): Settle | Promise<Settle> | undefined {
    const { quotas } = this.#options;
    return quotas.isMetered(tenant) ? quotas.admit(tenant, amountOf(tasks)) : undefined;
  }

  /** For what was not admitted: a repetition needs no room. Undefined unless all are stored. */
  async findStored(tasks: readonly EncodedTask[]): Promise<string[] | undefined> {
    return await findStored(this.#db, tasks);
  }

  async #find(tenant: string, name: string, isKeyed: boolean): Promise<KnownQueue> {
    const { directory } = this.#context;
    const { queuesMax } = this.#options;
    const known = await directory.findOrIntroduce(name, { tenant, queuesMax });
    return isKeyed ? await directory.withSettledKeys(known) : known;
  }

  #encoderOf(queue: KnownQueue, isMetered: boolean): TaskEncoder {
    const name = isMetered ? `${queue.name}\u0000` : queue.name;
    const known = this.#encoders.get(name);
    if (known?.queue === queue && known.encoder.shapeCount < SHAPES_MAX) return known.encoder;
    if (this.#encoders.size >= ENCODERS_MAX) this.#encoders.clear();
    const encoder = new TaskEncoder(this.#context.directory, queue, undefined, isMetered);
    this.#encoders.set(name, { queue, encoder });
    return encoder;
  }

  /**
   * Stores bulks in one transaction, durably when this resolves, with one result per task. Throws
   * CommitUnknownError when they may be stored; with any other error nothing of them is.
   */
  async store(bulks: readonly Bulk[]): Promise<StoreResult[][]> {
    const { directory, notifier } = this.#context;
    const results = await this.#store(bulks, (id) => directory.owners(id));
    notifier.ring();
    this.#options.onStored();
    this.#count(bulks, results);
    return results;
  }

  async #store(
    bulks: readonly Bulk[],
    ownersOf: Parameters<typeof storeBulks>[2],
  ): Promise<StoreResult[][]> {
    try {
      return await this.#db.transaction(async (tx) => {
        const isHurried = bulks.some(({ tasks }) => tasks.some(waitsForKey));
        const [, results] = await Promise.all([
          isHurried ? setLockTimeout(tx, LOCK_PATIENCE_MS) : undefined,
          storeBulks(tx, bulks, ownersOf),
        ]);
        return results;
      });
    } catch (error) {
      throw mapDatabaseError(error, "store tasks");
    }
  }

  #count(bulks: readonly Bulk[], results: readonly (readonly StoreResult[])[]): void {
    const counts = new Map<EncodedTask["shape"], number>();
    for (const [index, { tasks }] of bulks.entries()) {
      const ofBulk = results[index] ?? [];
      for (const [place, { shape }] of tasks.entries()) {
        if (typeof ofBulk[place] === "string") counts.set(shape, (counts.get(shape) ?? 0) + 1);
      }
    }
    for (const [{ queue }, count] of counts) this.#options.metrics.enqueued.add(count, { queue });
  }

  async close(): Promise<void> {
    await this.#db.close();
  }
}
