import { InvalidInputError, LimitError, NotFoundError } from "../base/errors.ts";
import { refuseUnknown } from "../base/options.ts";
import { bucketOf } from "../cluster/ring.ts";
import { announceChange } from "../cluster/sql/changes.ts";
import type { Database, Queryable } from "../db/database.ts";
import { announced } from "./announced.ts";
import type { QueueDirectory } from "./directory.ts";
import { KEY_BYTES_MAX, NAME_BYTES_MAX, requireText } from "./encode.ts";
import { type LimitChanges, type Limits, resolveLimitChanges } from "./limits.ts";
import { Queue, type QueueDefinition, type QueueSettings } from "./queue.ts";
import { type RingLoad, toRingLoad } from "./ring-load.ts";
import { type LoadBounds, readBucketLoad } from "./sql/bucket-load.ts";
import { type BucketOwner, readKeySpaceOwners } from "./sql/bucket-owners.ts";
import {
  countScheduled,
  pauseKey,
  pauseQueue,
  readQueueCounts,
  resetLimits,
  resumeKey,
  resumeQueue,
  setLimits,
} from "./sql/queue-admin.ts";
import { ensureQueue, type QueueRow, readQueues } from "./sql/queues.ts";
import { DEFAULT_TENANT, keyLane } from "./task.ts";
import type { AdminChannels } from "./task-admin.ts";

/**
 * A queue as people see it. Counts are kept, or counted up to a bound: asking is cheap however deep
 * it is.
 */
export interface QueueView {
  readonly name: string;
  readonly keySpace: string;
  readonly isPaused: boolean;
  readonly pauseReason: string | undefined;
  readonly limits: Limits;
  /** Its tasks are HTTP calls. Undefined: they are for handlers. */
  readonly kind?: "http";
  /** The tenant that named it first. Undefined: it is defined. */
  readonly introducedBy?: string;
  /** Live tasks by priority, running ones included. */
  readonly depths: Readonly<Record<string, number>>;
  readonly running: number;
  /** Counted up to 10,000. */
  readonly dead: number;
  /** Whether counting ended there: there may be more. */
  readonly isDeadCut: boolean;
  /** Age of the oldest task that could run; of keyed ones, among the first of their buckets. */
  readonly oldestPendingSeconds: number | undefined;
}

export interface KeyOptions {
  /** Defaults to "default". */
  readonly tenant?: string;
}

export interface PauseKeyOptions extends KeyOptions {
  /** Defaults to none: until it is resumed. */
  readonly until?: Date;
  /** Shown to people. Defaults to none. */
  readonly reason?: string;
}

/** Who owns which buckets of a key space. */
export interface RingView {
  readonly keySpace: string;
  /** Whose keys. */
  readonly tenant: string;
  readonly queues: readonly string[];
  readonly owners: readonly BucketOwner[];
}

const LOOKED: LoadBounds = { perBucket: 100, packs: 200, ended: 5_000, keys: 20 };
const QUEUES_MAX = 10_000;
const isHttp = ({ settings }: QueueRow): boolean =>
  (settings as Partial<QueueSettings>).http !== undefined;
const introduction = ({ is_provisional, introduced_by }: QueueRow): { introducedBy?: string } =>
  is_provisional && introduced_by !== null ? { introducedBy: introduced_by } : {};
const DELAYED_MAX = 10_000;
const DEAD_MAX = 10_000;

/** What a person, or a program for them, may ask and do about queues and their keys. */
export class QueueAdmin {
  readonly #db: Database;
  readonly #directory: QueueDirectory;
  readonly #channels: AdminChannels;

  constructor(db: Database, directory: QueueDirectory, channels: AdminChannels) {
    this.#db = db;
    this.#directory = directory;
    this.#channels = channels;
  }

  /** By name. */
  async list(): Promise<QueueView[]> {
    const [rows, counts] = await Promise.all([
      readQueues(this.#db),
      readQueueCounts(this.#db, DEAD_MAX),
    ]);
    return rows.map((row) => {
      const count = counts.find(({ name }) => name === row.name);
      return {
        name: row.name,
        // What a provisional one is called inside is nobody else's name.
        keySpace: row.is_provisional ? row.name : row.key_space,
        isPaused: row.paused_at !== null,
        pauseReason: row.pause_reason ?? undefined,
        limits: row.limits as Limits,
        ...(isHttp(row) ? { kind: "http" as const } : {}),
        ...introduction(row),
        depths: count?.depths ?? {},
        running: count?.running ?? 0,
        dead: count?.dead ?? 0,
        isDeadCut: count?.dead === DEAD_MAX,
        oldestPendingSeconds: count?.oldest_seconds ?? undefined,
      };
    });
  }

  /** Tasks that wait for their time; at most 10,000 are counted. */
  async delayed(queue: string): Promise<number> {
    return await countScheduled(this.#db, queue, DELAYED_MAX);
  }

  /**
   * Registers a queue with the settings that a definition without options has, unless it is there.
   * For names that come from callers: at most 10,000 queues are made in this way.
   */
  async ensure(name: string): Promise<"made" | "known"> {
    const [known] = await readQueues(this.#db, [name]);
    if (known !== undefined) return "known";
    const isMade = await ensureQueue(this.#db, new Queue(name, {}), QUEUES_MAX);
    if (isMade) return "made";
    if ((await readQueues(this.#db, [name])).length === 1) return "known";
    throw new LimitError(`there are ${QUEUES_MAX} queues; no more are made by their name`);
  }

  /**
   * Stores a definition without handling it, such as one of `httpQueue`, whose tasks any worker
   * with `httpJobs` runs. Settings that are stored are replaced.
   */
  async define(queue: QueueDefinition): Promise<"made" | "known"> {
    const [known] = await readQueues(this.#db, [queue.name]);
    await this.#directory.define(queue);
    await announceChange(this.#db, this.#channels.changes);
    return known === undefined ? "made" : "known";
  }

  /** Nothing more of it is claimed from now on; what runs goes on. */
  async pause(queue: string, options: { readonly reason?: string } = {}): Promise<void> {
    refuseUnknown("pause", options, ["reason"]);
    await this.#change(queue, (tx) => pauseQueue(tx, queue, options.reason ?? null));
  }

  async resume(queue: string): Promise<void> {
    await this.#change(queue, (tx) => resumeQueue(tx, queue));
  }

  /**
   * Changes the limits that are given, `null` lifts one, and leaves the others as they are. What is
   * set here holds over the definition, also over a later one, until `resetLimits`.
   */
  async setLimits(queue: string, limits: LimitChanges): Promise<void> {
    const changes = resolveLimitChanges(queue, limits);
    await this.#change(queue, (tx) => setLimits(tx, queue, changes));
  }

  /** The definition's limits hold again, all of them. */
  async resetLimits(queue: string): Promise<void> {
    await this.#change(queue, (tx) => resetLimits(tx, queue));
  }

  /** Holds back every task of a key, such as one whose API asked to wait. */
  async pauseKey(
    queue: QueueDefinition | string,
    key: string,
    options: PauseKeyOptions = {},
  ): Promise<void> {
    refuseUnknown("pauseKey", options, ["tenant", "until", "reason"]);
    const { until = null, reason = null, tenant = DEFAULT_TENANT } = options;
    if (until !== null && Number.isNaN(until.getTime())) {
      throw new InvalidInputError("until must be a valid Date");
    }
    requireText("key", key, KEY_BYTES_MAX);
    const keySpaceId = await this.#keySpaceOf(queue, tenant);
    const lane = keyLane(keySpaceId, bucketOf(key));
    await announced(this.#db, this.#channels.changes, async (tx) => {
      await pauseKey(tx, { keySpaceId, tenant, key, lane, until, reason });
      return true;
    });
  }

  /** False when it was not paused. */
  async resumeKey(
    queue: QueueDefinition | string,
    key: string,
    { tenant = DEFAULT_TENANT }: KeyOptions = {},
  ): Promise<boolean> {
    const keySpaceId = await this.#keySpaceOf(queue, tenant);
    const resume = (tx: Queryable): Promise<boolean> => resumeKey(tx, keySpaceId, tenant, key);
    return await announced(this.#db, this.#channels.changes, resume);
  }

  async #keySpaceOf(queue: QueueDefinition | string, tenant: string): Promise<number> {
    requireText("tenant", tenant, NAME_BYTES_MAX);
    return await this.#directory.keySpace(await this.#directory.find(queue), tenant);
  }

  /** Owners of the buckets of every key space, as the database has them. */
  async ring(): Promise<RingView[]> {
    const spaces = await readKeySpaceOwners(this.#db);
    return spaces.map(({ name, tenant, queues, owners }) => {
      return { keySpace: name, tenant, queues, owners };
    });
  }

  /**
   * Where the tasks of a key space are, and its busiest keys. Cheap however many there are: it
   * looks at the first hundred of each bucket, and at the newest that ended.
   */
  async ringLoad(
    keySpace: string,
    { tenant = DEFAULT_TENANT }: KeyOptions = {},
  ): Promise<RingLoad> {
    const spaces = await readKeySpaceOwners(this.#db);
    const space = spaces.find((one) => one.name === keySpace && one.tenant === tenant);
    if (space === undefined) {
      throw new NotFoundError(`there is no key space "${keySpace}" of tenant "${tenant}"`);
    }
    return toRingLoad(await readBucketLoad(this.#db, space, LOOKED), LOOKED);
  }

  async #change(queue: string, act: (tx: Queryable) => Promise<boolean>): Promise<void> {
    const isThere = await announced(this.#db, this.#channels.changes, act);
    if (!isThere) throw new NotFoundError(`there is no queue "${queue}"`);
  }
}
