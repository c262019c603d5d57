import { type Clock, systemClock } from "../base/clock.ts";
import { ConfigError, InvalidInputError } from "../base/errors.ts";
import type { Database, Queryable } from "../db/database.ts";
import { setLockTimeout } from "../db/sql/session.ts";
import { sqlState } from "../db/sqlstate.ts";
import { PROBATION } from "./priority.ts";
import type { QueueDefinition, QueueSettings } from "./queue.ts";
import { readBuckets } from "./sql/bucket-owners.ts";
import { ensureLane, type QueueRow, readQueues, registerQueue } from "./sql/queues.ts";
import { keyLane } from "./task.ts";

/** A queue as it is registered in the database. */
export interface KnownQueue {
  readonly name: string;
  readonly keySpaceId: number;
  readonly settings: QueueSettings;
  readonly definition: QueueDefinition | undefined;
}

const LANE_PATIENCE_MS = 500;
/** So old, what is known of owners is asked for again. */
const OWNERS_MS = 1_000;

/** By bucket: the number of its owner, which tells owners apart and nothing else. */
export type BucketOwners = readonly (number | undefined)[];

interface KnownOwners {
  owners: Promise<BucketOwners>;
  askedAtMs: number;
}

/**
 * What producers and workers remember of queues and lanes. Both are only ever added, so a memory of
 * them cannot be wrong; they are written outside the caller's transaction, whose rollback would
 * otherwise take back what is remembered here.
 */
export class QueueDirectory {
  readonly #db: Database;
  readonly #queues = new Map<string, Promise<KnownQueue>>();
  readonly #lanes = new Map<string, number>();
  readonly #owners = new Map<number, KnownOwners>();
  readonly #clock: Clock;

  constructor(db: Database, clock: Clock = systemClock) {
    this.#db = db;
    this.#clock = clock;
  }

  /** Registers a definition once per process; a name must have been registered by somebody. */
  async find(queue: QueueDefinition | string): Promise<KnownQueue> {
    const name = typeof queue === "string" ? queue : queue.name;
    const known = await this.#queues.get(name);
    if (known !== undefined && isSameDefinition(known.definition, queue)) return known;
    const finding = typeof queue === "string" ? this.#read(queue) : this.#register(queue);
    this.#queues.set(name, finding);
    try {
      return await finding;
    } catch (error) {
      if (this.#queues.get(name) === finding) this.#queues.delete(name);
      throw error;
    }
  }

  /** All queues that are registered now. */
  async names(): Promise<string[]> {
    return (await readQueues(this.#db)).map(({ name }) => name);
  }

  async #read(name: string): Promise<KnownQueue> {
    const [row] = await readQueues(this.#db, [name]);
    if (row !== undefined) return toKnownQueue(row, undefined);
    const names = (await readQueues(this.#db)).map((one) => `"${one.name}"`);
    throw new InvalidInputError(
      `there is no queue "${name}"; ` +
        (names.length === 0
          ? "none is registered yet: a worker that handles it, or an enqueue with it, does"
          : `registered are ${names.slice(0, 20).join(", ")}`),
    );
  }

  async #register(queue: QueueDefinition): Promise<KnownQueue> {
    await registerQueue(this.#db, queue);
    const [row] = await readQueues(this.#db, [queue.name]);
    if (row === undefined) throw new Error(`queue ${queue.name} was not registered`);
    if (row.key_space !== queue.keySpace) {
      throw new ConfigError(
        `queue "${queue.name}" is registered with key space "${row.key_space}", not ` +
          `"${queue.keySpace}"; moving it would break the order of keys: use a new queue name`,
      );
    }
    return toKnownQueue(row, queue);
  }

  /** The lane of an unkeyed task. `tx` is the caller's, if it has one. */
  async lane(queue: KnownQueue, tenant: string, priority: number, tx?: Queryable): Promise<number> {
    const key = JSON.stringify([queue.name, tenant, priority]);
    const known = this.#lanes.get(key);
    if (known !== undefined) return known;
    try {
      const lane = await this.#db.transaction(async (own) => {
        await setLockTimeout(own, LANE_PATIENCE_MS);
        await ensureLane(own, queue.name, tenant, PROBATION);
        return await ensureLane(own, queue.name, tenant, priority);
      });
      this.#lanes.set(key, lane);
      return lane;
    } catch (error) {
      // The caller's own transaction made this lane, by SQL, and has not committed yet.
      const isBusy = sqlState(error) === "55P03" || sqlState((error as Error).cause) === "55P03";
      if (tx === undefined || !isBusy) throw error;
      return await ensureLane(tx, queue.name, tenant, priority);
    }
  }

  /**
   * Who owns which buckets, as it was a moment ago: only a hint, by which tasks of one owner are
   * put together. Nobody waits for it but the first who asks.
   */
  async owners(keySpaceId: number): Promise<BucketOwners> {
    const known = this.#owners.get(keySpaceId);
    const nowMs = this.#clock.now();
    if (known === undefined) {
      const owners = this.#readOwners(keySpaceId);
      this.#owners.set(keySpaceId, { owners, askedAtMs: nowMs });
      return await owners;
    }
    if (nowMs - known.askedAtMs >= OWNERS_MS) {
      known.askedAtMs = nowMs;
      const reading = this.#readOwners(keySpaceId);
      void reading.then(() => {
        known.owners = reading;
      });
    }
    return await known.owners;
  }

  async #readOwners(keySpaceId: number): Promise<BucketOwners> {
    const owners: (number | undefined)[] = [];
    // Without it all are taken for one owner's, which costs time and nothing else.
    const all = await readBuckets(this.#db, keySpaceId).catch(() => []);
    for (const [owner, buckets] of all.entries()) {
      for (const bucket of buckets) owners[bucket] = owner;
    }
    return owners;
  }

  /** The lane of bucket 0 of the queue's key space; the others count down from it. */
  keyLane(queue: KnownQueue): number {
    return keyLane(queue.keySpaceId, 0);
  }
}

/** Two definitions of one name in a process: the one used last is the one registered. */
function isSameDefinition(
  known: QueueDefinition | undefined,
  given: QueueDefinition | string,
): boolean {
  return typeof given === "string" || known === given;
}

function toKnownQueue(row: QueueRow, definition: QueueDefinition | undefined): KnownQueue {
  return {
    name: row.name,
    keySpaceId: row.key_space_id,
    settings: definition?.settings ?? (row.settings as QueueSettings),
    definition,
  };
}
