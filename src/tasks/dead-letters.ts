import { InvalidInputError, messageOf, NotFoundError } from "../base/errors.ts";
import { refuseUnknown, requireNumber, requireOneOf } from "../base/options.ts";
import { announceChange } from "../cluster/sql/changes.ts";
import type { Database } from "../db/database.ts";
import { notify } from "../db/sql/session.ts";
import {
  type DeadFilter,
  editDeadLetter,
  purgeDeadLetters,
  redriveDeadLetters,
} from "./sql/act.ts";
import { listTasks } from "./sql/inspect.ts";
import { type AdminChannels, requireTaskId } from "./task-admin.ts";
import { type TaskView, toTaskView } from "./view.ts";

/** Which dead letters. Without any field: all. */
export interface DeadLetterFilter extends DeadFilter {
  readonly cause?: "attempts_exhausted" | "worker_lost" | "invalid_payload";
}

export interface DeadLetterListOptions {
  readonly queue?: string;
  readonly tenant?: string;
  readonly partitionKey?: string;
  readonly before?: string;
  /** Defaults to 50, at most 1,000. */
  readonly limit?: number;
}

const FILTER_KEYS = ["queue", "tenant", "cause", "kind", "ids", "partitionKey"];
const CAUSES = ["attempts_exhausted", "worker_lost", "invalid_payload"] as const;
/** Rows per transaction: a desk of a million letters must not be one. */
const BATCH = 1_000;

/** Tasks that ran out of attempts, took their workers along, or no longer fit their schema. */
export class DeadLetters {
  readonly #db: Database;
  readonly #channels: AdminChannels;

  constructor(db: Database, channels: AdminChannels) {
    this.#db = db;
    this.#channels = channels;
  }

  /** Newest first. */
  async list(options: DeadLetterListOptions = {}): Promise<TaskView[]> {
    refuseUnknown("list", options, ["queue", "tenant", "partitionKey", "before", "limit"]);
    const { limit = 50, ...filter } = options;
    requireNumber("limit", limit, { min: 1, max: 1_000, integer: true });
    if (filter.before !== undefined) requireTaskId(filter.before);
    return (await listTasks(this.#db, { ...filter, state: "dead", limit })).map(toTaskView);
  }

  /**
   * Runs them again with all their attempts; keyed ones in the order of their keys, and before what
   * still waits behind them. Returns how many.
   */
  async redrive(filter: DeadLetterFilter = {}): Promise<number> {
    const count = await this.#inBatches(filter, redriveDeadLetters);
    if (count > 0) {
      await notify(this.#db, this.#channels.tasks, "");
      await announceChange(this.#db, this.#channels.changes);
    }
    return count;
  }

  /** Deletes them for good. A key that was parked behind one flows again. Returns how many. */
  async purge(filter: DeadLetterFilter): Promise<number> {
    const count = await this.#inBatches(filter, purgeDeadLetters);
    if (count > 0) await announceChange(this.#db, this.#channels.changes);
    return count;
  }

  /** Replaces the payload of one, to redrive it afterwards. */
  async edit(id: string, payload: unknown): Promise<void> {
    requireTaskId(id);
    let json: string | undefined;
    try {
      json = JSON.stringify(payload);
    } catch (error) {
      throw new InvalidInputError(`the payload cannot be written as JSON: ${messageOf(error)}`);
    }
    if (json === undefined) throw new InvalidInputError("the payload cannot be written as JSON");
    if (await editDeadLetter(this.#db, id, json)) return;
    throw new NotFoundError(`there is no dead letter ${id}`);
  }

  async #inBatches(filter: DeadLetterFilter, act: typeof redriveDeadLetters): Promise<number> {
    refuseUnknown("dead letter filter", filter, FILTER_KEYS);
    if (filter.cause !== undefined) requireOneOf("cause", filter.cause, CAUSES);
    for (const id of filter.ids ?? []) requireTaskId(id);
    let total = 0;
    for (;;) {
      const done = await this.#db.transaction((tx) => act(tx, filter, BATCH));
      total += done.length;
      if (done.length < BATCH) return total;
    }
  }
}
