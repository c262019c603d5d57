import { BoundedMap } from "../base/bounded-map.ts";
import { type Clock, systemClock } from "../base/clock.ts";
import { ConfigError, InvalidInputError } from "../base/errors.ts";
import type { Database, Queryable } from "../db/database.ts";
import { setLockTimeout } from "../db/sql/session.ts";
import { sqlState } from "../db/sqlstate.ts";
import { PROBATION } from "./priority.ts";
import { Queue, type QueueDefinition, type QueueSettings } from "./queue.ts";
import { readBuckets } from "./sql/bucket-owners.ts";
import {
  adoptQueue,
  ensureKeySpace,
  ensureLane,
  introduceQueue,
  type QueueRow,
  readQueues,
  registerQueue,
  settleKeySpace,
} from "./sql/queues.ts";
import { DEFAULT_TENANT, keyLane } from "./task.ts";

/** A queue as it is registered in the database. */
export interface KnownQueue {
  readonly name: string;
  /** Of the tenant "default"; that of another tenant is found by it. */
  readonly keySpaceId: number;
  readonly settings: QueueSettings;
  readonly definition: QueueDefinition | undefined;
  /** A definition may still give it another key space. */
  readonly isOpen: boolean;
}

/** On whose behalf a queue may be made that nobody defined, and how many of them. */
export interface Introducer {
  readonly tenant: string;
  readonly queuesMax: number;
}

interface FoundQueue {
  finding: Promise<KnownQueue>;
  known?: KnownQueue;
  askedAtMs: number;
}

const LANE_PATIENCE_MS = 500;
/** Lanes, and key spaces of tenants: there are more with every tenant. */
const REMEMBERED_MAX = 100_000;
/** Key spaces whose owners are known, with 360 buckets each. */
const OWNERS_MAX = 10_000;
/** So old, what is known of owners is asked for again. */
const OWNERS_MS = 1_000;
/** So old, what is known of a queue that others define is asked for again. */
const QUEUE_MS = 5_000;

/** By bucket: the number of its owner, which tells owners apart and nothing else. */
export type BucketOwners = readonly (number | undefined)[];

interface KnownOwners {
  owners: Promise<BucketOwners>;
  askedAtMs: number;
}

/**
 * What producers and workers remember of queues and lanes. Lanes are only ever added, so a memory
 * of them cannot be wrong; settings that others define are asked for again now and then. All of it
 * is written outside the caller's transaction, whose rollback would otherwise take back what is
 * remembered here.
 */
export class QueueDirectory {
  readonly #db: Database;
  readonly #queues = new Map<string, FoundQueue>();
  readonly #lanes = new BoundedMap<string, number>(REMEMBERED_MAX);
  readonly #keySpaces = new BoundedMap<string, number>(REMEMBERED_MAX);
  readonly #owners = new BoundedMap<number, KnownOwners>(OWNERS_MAX);
  readonly #clock: Clock;
  #introducing: Promise<unknown> = Promise.resolve();

  constructor(db: Database, clock: Clock = systemClock) {
    this.#db = db;
    this.#clock = clock;
  }

  /** Registers a definition once per process; a name must have been registered by somebody. */
  async find(queue: QueueDefinition | string): Promise<KnownQueue> {
    const name = typeof queue === "string" ? queue : queue.name;
    const found = this.#queues.get(name);
    if (found !== undefined) {
      const known = await found.finding;
      if (isSameDefinition(known.definition, queue)) return this.peek(name) ?? known;
    }
    return await this.#remember(
      name,
      typeof queue === "string" ? this.#readNamed(queue) : this.#register(queue),
    );
  }

  /** Stores a definition on somebody's behalf: it is known by what is stored, as any other. */
  async define(queue: QueueDefinition): Promise<KnownQueue> {
    await this.#register(queue);
    return await this.#remember(queue.name, this.#readNamed(queue.name));
  }

  /** Whether it can be found by its name. */
  async has(name: string): Promise<boolean> {
    return this.peek(name) !== undefined || (await this.#read(name)) !== undefined;
  }

  /** All queues that are registered now and whose tasks are for handlers. */
  async names(): Promise<string[]> {
    const rows = await readQueues(this.#db);
    const isHttp = (settings: unknown): boolean =>
      (settings as Partial<QueueSettings>).http !== undefined;
    return rows.flatMap(({ name, settings }) => (isHttp(settings) ? [] : [name]));
  }

  /** What is known of it without asking; it is asked for again meanwhile when that is old. */
  peek(name: string): KnownQueue | undefined {
    const found = this.#queues.get(name);
    if (found?.known === undefined) return undefined;
    const nowMs = this.#clock.now();
    const isOld = nowMs - found.askedAtMs >= QUEUE_MS;
    if (isOld && found.known.definition === undefined) {
      found.askedAtMs = nowMs;
      void this.#refresh(found, found.known);
    }
    return found.known;
  }

  /** A queue that nobody defined is made, with the defaults, until somebody does. */
  async findOrIntroduce(name: string, by: Introducer): Promise<KnownQueue> {
    // That another tenant may not introduce it says nothing about this one.
    const known = await this.#queues.get(name)?.finding.catch(() => undefined);
    if (known !== undefined) return this.peek(name) ?? known;
    return await this.#remember(name, this.#readOrIntroduce(name, by));
  }

  /** The same queue with a key space that no definition changes any more. */
  async withSettledKeys(queue: KnownQueue): Promise<KnownQueue> {
    if (!queue.isOpen) return queue;
    await settleKeySpace(this.#db, queue.name);
    return await this.#remember(queue.name, this.#readNamed(queue.name));
  }

  #remember(name: string, reading: Promise<KnownQueue>): Promise<KnownQueue> {
    const finding = reading.then(
      (known) => {
        found.known = known;
        return known;
      },
      (error: unknown) => {
        if (this.#queues.get(name) === found) this.#queues.delete(name);
        throw error;
      },
    );
    const found: FoundQueue = { finding, askedAtMs: this.#clock.now() };
    this.#queues.set(name, found);
    return finding;
  }

  async #refresh(found: FoundQueue, before: KnownQueue): Promise<void> {
    // Old settings serve until the database answers.
    const [row] = await readQueues(this.#db, [before.name]).catch(() => []);
    if (row === undefined || found.known !== before) return;
    const now = toKnownQueue(row, undefined);
    // The same object as long as nothing changed: much is remembered by it.
    if (JSON.stringify(now) === JSON.stringify(before)) return;
    found.known = now;
    found.finding = Promise.resolve(now);
  }

  async #read(name: string): Promise<KnownQueue | undefined> {
    const [row] = await readQueues(this.#db, [name]);
    return row === undefined ? undefined : toKnownQueue(row, undefined);
  }

  async #readNamed(name: string): Promise<KnownQueue> {
    const known = await this.#read(name);
    if (known !== undefined) return known;
    const names = (await readQueues(this.#db)).map((one) => `"${one.name}"`);
    throw new InvalidInputError(
      `there is no queue "${name}"; ` +
        (names.length === 0
          ? "none is registered yet: a worker that handles it, or an enqueue with it, does"
          : `registered are ${names.slice(0, 20).join(", ")}`),
    );
  }

  async #readOrIntroduce(name: string, { tenant, queuesMax }: Introducer): Promise<KnownQueue> {
    const known = await this.#read(name);
    if (known !== undefined) return known;
    const { settings } = new Queue(name, {});
    // One after another: the limit counts what is there when the statement begins.
    const introducing = this.#introducing.then(() =>
      introduceQueue(this.#db, { name, settings, tenant, queuesMax }),
    );
    this.#introducing = introducing.catch(() => {});
    await introducing;
    const made = await this.#read(name);
    if (made !== undefined) return made;
    throw new InvalidInputError(
      `there is no queue ${JSON.stringify(name)}, and this tenant has introduced ${queuesMax} ` +
        "queues that no worker defines: define them, or use one that is there",
    );
  }

  async #register(queue: QueueDefinition): Promise<KnownQueue> {
    let row = await this.#registered(queue);
    // Introduced between two statements: what is there now was made by nobody else.
    if (row.is_provisional) row = await this.#registered(queue);
    if (row.is_provisional || row.key_space !== queue.keySpace) {
      const space = row.is_provisional ? "of its own" : `"${row.key_space}"`;
      throw new ConfigError(
        `queue "${queue.name}" is registered with key space ${space}, not ` +
          `"${queue.keySpace}"; moving it would break the order of keys: use a new queue name`,
      );
    }
    return toKnownQueue(row, queue);
  }

  async #registered(queue: QueueDefinition): Promise<QueueRow> {
    const [before] = await readQueues(this.#db, [queue.name]);
    if (before?.is_provisional === true) {
      await this.#db.transaction((tx) => adoptQueue(tx, queue));
    }
    await registerQueue(this.#db, queue);
    const [row] = await readQueues(this.#db, [queue.name]);
    if (row === undefined) throw new Error(`queue ${queue.name} was not registered`);
    return row;
  }

  /** The lane of an unkeyed task. `tx` is the caller's, if it has one. */
  async lane(queue: KnownQueue, tenant: string, priority: number, tx?: Queryable): Promise<number> {
    const key = JSON.stringify([queue.name, tenant, priority]);
    const known = this.#lanes.get(key);
    if (known !== undefined) return known;
    const { made, isKept } = await this.#make(tx, async (db) => {
      if (db !== tx) await ensureLane(db, queue.name, tenant, PROBATION);
      return await ensureLane(db, queue.name, tenant, priority);
    });
    if (isKept) this.#lanes.set(key, made);
    return made;
  }

  /** Makes what is remembered here, and so must not depend on the caller's transaction. */
  async #make(
    tx: Queryable | undefined,
    make: (db: Queryable) => Promise<number>,
  ): Promise<{ readonly made: number; readonly isKept: boolean }> {
    try {
      const made = await this.#db.transaction(async (own) => {
        await setLockTimeout(own, LANE_PATIENCE_MS);
        return await make(own);
      });
      return { made, isKept: true };
    } catch (error) {
      // The caller's own transaction made it, by SQL, and has not committed yet.
      const isBusy = sqlState(error) === "55P03" || sqlState((error as Error).cause) === "55P03";
      if (tx === undefined || !isBusy) throw error;
      return { made: await make(tx), isKept: false };
    }
  }

  /** Where keys of the tenant are in order. `tx` is the caller's, if it has one. */
  async keySpace(queue: KnownQueue, tenant: string, tx?: Queryable): Promise<number> {
    if (tenant === DEFAULT_TENANT) return queue.keySpaceId;
    const key = JSON.stringify([queue.keySpaceId, tenant]);
    const known = this.#keySpaces.get(key);
    if (known !== undefined) return known;
    const { made, isKept } = await this.#make(tx, (db) =>
      ensureKeySpace(db, queue.keySpaceId, tenant),
    );
    if (isKept) this.#keySpaces.set(key, made);
    return made;
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

  /** The lane of bucket 0 of the tenant's keys in the queue; the others count down from it. */
  async keyLane(queue: KnownQueue, tenant: string, tx?: Queryable): Promise<number> {
    return keyLane(await this.keySpace(queue, tenant, tx), 0);
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
    isOpen: row.is_open,
  };
}
