import { ConflictError, InvalidInputError, NotFoundError } from "../base/errors.ts";
import { refuseUnknown, requireNumber, requireOneOf } from "../base/options.ts";
import { announceChange } from "../cluster/sql/changes.ts";
import type { Database } from "../db/database.ts";
import { notify } from "../db/sql/session.ts";
import {
  cancelRunning,
  cancelWaiting,
  hurryTask,
  redriveDeadLetters,
  reviveTask,
} from "./sql/act.ts";
import { findTasks, listTasks, readFailures, type TaskRow } from "./sql/inspect.ts";
import { openPackOf } from "./sql/open-packs.ts";
import { readWhy } from "./sql/why.ts";
import type { TaskState } from "./task.ts";
import { type TaskFailure, type TaskView, toTaskFailure, toTaskView } from "./view.ts";
import { explain } from "./why.ts";

export interface ListTasksOptions {
  readonly queue?: string;
  readonly tenant?: string;
  readonly partitionKey?: string;
  readonly state?: TaskState;
  /** Only tasks older than this one: the last id of the page before. */
  readonly before?: string;
  /** Defaults to 50, at most 1,000. */
  readonly limit?: number;
}

export interface TenantOptions {
  /** Only a task of this tenant; one of another is not found. Defaults to any. */
  readonly tenant?: string;
}

const STATES = [
  "scheduled",
  "pending",
  "running",
  "completed",
  "failed",
  "dead",
  "cancelled",
] as const;

/** Where a person's acts are announced. */
export interface AdminChannels {
  readonly changes: string;
  readonly tasks: string;
}

/** What a person, or a program for them, may ask and do about single tasks. */
export class TaskAdmin {
  readonly #db: Database;
  readonly #channels: AdminChannels;

  constructor(db: Database, channels: AdminChannels) {
    this.#db = db;
    this.#channels = channels;
  }

  async get(id: string, { tenant }: TenantOptions = {}): Promise<TaskView> {
    return toTaskView(await this.#find(id, tenant));
  }

  /** Every attempt that did not complete it, oldest first. */
  async failures(id: string, { tenant }: TenantOptions = {}): Promise<TaskFailure[]> {
    await this.#find(id, tenant);
    return (await readFailures(this.#db, id)).map(toTaskFailure);
  }

  /** Newest first. */
  async list(options: ListTasksOptions = {}): Promise<TaskView[]> {
    const known = ["queue", "tenant", "partitionKey", "state", "before", "limit"];
    refuseUnknown("list", options, known);
    const { limit = 50, state, before, ...filter } = options;
    requireNumber("limit", limit, { min: 1, max: 1_000, integer: true });
    if (state !== undefined) requireOneOf("state", state, STATES);
    if (before !== undefined) requireTaskId(before);
    return (await listTasks(this.#db, { ...filter, state, before, limit })).map(toTaskView);
  }

  /** A waiting task never runs; a running one is told by its signal, and ends when it heeds. */
  async cancel(
    id: string,
    options: TenantOptions & { readonly reason?: string } = {},
  ): Promise<"cancelled" | "cancelling"> {
    refuseUnknown("cancel", options, ["reason", "tenant"]);
    requireTaskId(id);
    const { reason = "cancelled by request", tenant } = options;
    // Between the statements it may have been claimed, or put back.
    for (let tries = 0; tries < 3; tries += 1) {
      await this.#openPackOf(id, tenant);
      if (await cancelWaiting(this.#db, id, reason, tenant)) {
        await announceChange(this.#db, this.#channels.changes);
        return "cancelled";
      }
      if (await cancelRunning(this.#db, id, reason, tenant)) {
        await announceChange(this.#db, this.#channels.changes);
        return "cancelling";
      }
    }
    const { state } = await this.#find(id, tenant);
    throw new ConflictError(`task ${id} is ${state}: there is nothing to cancel`);
  }

  /** Runs now what waits for its time; gives another life to what failed, died or was cancelled. */
  async retry(id: string, { tenant }: TenantOptions = {}): Promise<void> {
    const { state } = await this.#find(id, tenant);
    await this.#openPackOf(id, tenant);
    const isDone =
      (await hurryTask(this.#db, id, tenant)) ||
      (await redriveDeadLetters(this.#db, { ids: [id] }, 1)).length === 1 ||
      (await reviveTask(this.#db, id, tenant));
    if (!isDone) throw new ConflictError(`task ${id} is ${state}: there is nothing to retry`);
    await notify(this.#db, this.#channels.tasks, "");
    await announceChange(this.#db, this.#channels.changes);
  }

  /** Why the task is not running, in a sentence. */
  async why(id: string, { tenant }: TenantOptions = {}): Promise<string> {
    const row = await this.#find(id, tenant);
    const facts = await readWhy(this.#db, id);
    return explain(row, facts);
  }

  /** A task of a pack becomes a row, unless it is another tenant's. */
  async #openPackOf(id: string, tenant: string | undefined): Promise<void> {
    const isOpened = await openPackOf(this.#db, id, tenant);
    if (isOpened) await notify(this.#db, this.#channels.tasks, "");
  }

  async #find(id: string, tenant: string | undefined): Promise<TaskRow> {
    requireTaskId(id);
    const [row] = await findTasks(this.#db, [id]);
    if (row === undefined || (tenant !== undefined && row.tenant !== tenant)) {
      throw new NotFoundError(`there is no task ${id}, or its history was dropped`);
    }
    return row;
  }
}

export function requireTaskId(id: unknown): void {
  if (typeof id === "string" && /^[1-9]\d{0,17}$/.test(id)) return;
  throw new InvalidInputError(`a task id is a number such as "4711", not ${JSON.stringify(id)}`);
}
