import { NotFoundError } from "../base/errors.ts";
import { refuseUnknown, requireNumber, requireOneOf } from "../base/options.ts";
import type { Queryable, Store } from "../db/database.ts";
import { notify } from "../db/sql/session.ts";
import { announced } from "./announced.ts";
import { toJson } from "./new-task.ts";
import type { Amount } from "./quota.ts";
import {
  countDeadLetters,
  type DeadFilter,
  editDeadLetter,
  purgeDeadLetters,
  redriveDeadLetters,
  weighDeadLetters,
} from "./sql/act.ts";
import { readDeadGroups } from "./sql/dead-groups.ts";
import { listTasks } from "./sql/list.ts";
import { type AdminChannels, requireTaskId, type TenantOptions } from "./task-admin.ts";
import { type TaskView, toTaskView } from "./view.ts";

/** Which dead letters. Without any field: all. */
export interface DeadLetterFilter {
  readonly queue?: string;
  /** Only of these, if `queue` is not given. Defaults to all. */
  readonly queues?: readonly string[];
  readonly tenant?: string;
  readonly kind?: string;
  readonly ids?: readonly string[];
  readonly partitionKey?: string;
  readonly cause?: "attempts_exhausted" | "worker_lost" | "invalid_payload";
  /**
   * Only those that died before. Of a redrive it defaults to now, by the database's clock: what is
   * redriven and dies again is not meant.
   */
  readonly diedBefore?: Date;
}

export interface DeadLetterListOptions {
  readonly queue?: string;
  readonly queues?: readonly string[];
  readonly tenant?: string;
  readonly partitionKey?: string;
  readonly before?: string;
  /** Defaults to 50, at most 1,000. */
  readonly limit?: number;
}

export type DeadLetterGroupOptions = Omit<DeadLetterFilter, "ids" | "diedBefore">;

/** Dead letters of one queue that died of the same. */
export interface DeadLetterGroup {
  readonly queue: string;
  readonly cause: string;
  /** With # for each number. */
  readonly reason: string;
  readonly count: number;
  readonly firstAt: Date;
  readonly lastAt: Date;
  /** Oldest first. */
  readonly ids: readonly string[];
}

export interface DeadLetterGroups {
  readonly groups: readonly DeadLetterGroup[];
  /** There are more dead letters than those that were looked at. */
  readonly isCut: boolean;
}

export interface ActOnManyOptions {
  /** Stops after so many. Defaults to all. */
  readonly limit?: number;
}

const FILTER_KEYS = [
  "queue",
  "queues",
  "tenant",
  "cause",
  "kind",
  "ids",
  "partitionKey",
  "diedBefore",
];
const CAUSES = ["attempts_exhausted", "worker_lost", "invalid_payload"] as const;
/** Rows per transaction: a desk of a million letters must not be one. */
const BATCH = 1_000;
const GROUPED_MAX = 10_000;
const GROUPS_MAX = 200;

/** Tasks that ran out of attempts, took their workers along, or no longer fit their schema. */
export class DeadLetters {
  readonly #db: Store;
  readonly #channels: AdminChannels;

  constructor(db: Store, channels: AdminChannels) {
    this.#db = db;
    this.#channels = channels;
  }

  /** Newest first. */
  async list(options: DeadLetterListOptions = {}): Promise<TaskView[]> {
    const known = ["queue", "queues", "tenant", "partitionKey", "before", "limit"];
    refuseUnknown("list", options, known);
    const { limit = 50, queue, queues, ...filter } = options;
    requireNumber("limit", limit, { min: 1, max: 1_000, integer: true });
    if (filter.before !== undefined) requireTaskId(filter.before);
    const of = queue === undefined ? queues : [queue];
    const { rows } = await listTasks(this.#db, { ...filter, queues: of, state: "dead", limit });
    return rows.map(toTaskView);
  }

  /** What they died of, the most frequent first: of the newest 10,000, at most 200 groups. */
  async groups(options: DeadLetterGroupOptions = {}): Promise<DeadLetterGroups> {
    const known = ["queue", "queues", "tenant", "cause", "kind", "partitionKey"];
    refuseUnknown("groups", options, known);
    const scope = this.#which(options);
    const most = { letters: GROUPED_MAX, groups: GROUPS_MAX };
    const rows = await readDeadGroups(this.#db, scope, most);
    const groups = rows.map(({ first_at: firstAt, last_at: lastAt, ...row }) => ({
      ...row,
      firstAt,
      lastAt,
    }));
    const grouped = rows.reduce((sum, { count }) => sum + count, 0);
    return { groups, isCut: grouped >= GROUPED_MAX || rows.length === GROUPS_MAX };
  }

  /**
   * Runs them again with all their attempts; keyed ones in the order of their keys, and before what
   * still waits behind them. Returns how many.
   */
  async redrive(filter: DeadLetterFilter = {}, options: ActOnManyOptions = {}): Promise<number> {
    const { diedBefore = (await this.count(filter, 1)).at } = filter;
    const redrive: Act = async (tx, which, most) => {
      const ids = await redriveDeadLetters(tx, which, most);
      if (ids.length > 0) await notify(tx, this.#channels.tasks, "");
      return ids;
    };
    return await this.#inBatches({ ...filter, diedBefore }, redrive, options);
  }

  /** How many {@link redrive} would run again, and what they weigh. */
  async weigh(filter: DeadLetterFilter, limit: number): Promise<Amount> {
    return await weighDeadLetters(this.#db, this.#which(filter), limit);
  }

  /** How many there are, counted up to so many, and until when that was so. */
  async count(
    filter: DeadLetterFilter,
    max: number,
  ): Promise<{ readonly count: number; readonly at: Date }> {
    requireNumber("max", max, { min: 1, integer: true });
    return await countDeadLetters(this.#db, this.#which(filter), max);
  }

  /** Deletes them for good. A key that was parked behind one flows again. Returns how many. */
  async purge(filter: DeadLetterFilter, options: ActOnManyOptions = {}): Promise<number> {
    return await this.#inBatches(filter, purgeDeadLetters, options);
  }

  /** Replaces the payload of one by JSON or bytes, to redrive it afterwards. */
  async edit(id: string, payload: unknown, options: EditOptions = {}): Promise<void> {
    refuseUnknown("edit", options, ["tenant", "queues", "contentType"]);
    requireTaskId(id);
    const { contentType = "application/octet-stream", ...scope } = options;
    const stored =
      payload instanceof Uint8Array ? { bytes: payload, contentType } : { json: toJson(payload) };
    if (await editDeadLetter(this.#db, id, stored, scope)) return;
    throw new NotFoundError(`there is no dead letter ${id}`);
  }

  async #inBatches(filter: DeadLetterFilter, act: Act, options: ActOnManyOptions): Promise<number> {
    refuseUnknown("dead letter", options, ["limit"]);
    const { limit = Number.MAX_SAFE_INTEGER } = options;
    requireNumber("limit", limit, { min: 1, integer: true });
    const which = this.#which(filter);
    let total = 0;
    for (;;) {
      const most = Math.min(BATCH, limit - total);
      const done = await announced(this.#db, this.#channels.changes, (tx) => act(tx, which, most));
      total += done.length;
      if (done.length < most || total >= limit) return total;
    }
  }

  #which(filter: DeadLetterFilter): DeadFilter {
    refuseUnknown("dead letter filter", filter, FILTER_KEYS);
    const { queue, queues, ...rest } = filter;
    if (rest.cause !== undefined) requireOneOf("cause", rest.cause, CAUSES);
    for (const id of rest.ids ?? []) requireTaskId(id);
    return { ...rest, queues: queue === undefined ? queues : [queue] };
  }
}

export interface EditOptions extends TenantOptions {
  /** Of a payload given as bytes. Defaults to "application/octet-stream". */
  readonly contentType?: string;
}

type Act = (tx: Queryable, filter: DeadFilter, max: number) => Promise<string[]>;
