import { ConflictError, InvalidInputError, NotFoundError } from "../base/errors.ts";
import { refuseUnknown, requireNumber, requireOneOf } from "../base/options.ts";
import type { Queryable, Store } from "../db/database.ts";
import { notify } from "../db/sql/session.ts";
import { announced } from "./announced.ts";
import {
  cancelRunning,
  cancelWaiting,
  deleteEnded,
  hurryTask,
  redriveDeadLetters,
  reviveTask,
} from "./sql/act.ts";
import { findTasks, readFailures, type TaskRow } from "./sql/inspect.ts";
import { listTasks, type TaskPage } from "./sql/list.ts";
import { openPackOf } from "./sql/open-packs.ts";
import { readWhy } from "./sql/why.ts";
import type { TaskState } from "./task.ts";
import { type TaskFailure, type TaskView, toTaskFailure, toTaskView } from "./view.ts";
import { explain } from "./why.ts";

export interface ListTasksOptions {
  readonly queue?: string;
  /** Only of these, if `queue` is not given. Defaults to all. */
  readonly queues?: readonly string[];
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
  /** Only a task of these queues; one of another is not found. Defaults to any. */
  readonly queues?: readonly string[];
}

export interface WhyOptions extends TenantOptions {
  /** Whether to tell what a person said when they paused its queue. Defaults to true. */
  readonly withPauseReason?: boolean;
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

/** An instant, or so long ago by the database's clock. */
export type EndedBefore = { readonly before: Date } | { readonly olderThanMs: number };

/** Where a person's acts are announced. */
export interface AdminChannels {
  readonly changes: string;
  readonly tasks: string;
}

/** What a person, or a program for them, may ask and do about single tasks. */
export class TaskAdmin {
  readonly #db: Store;
  readonly #channels: AdminChannels;

  constructor(db: Store, channels: AdminChannels) {
    this.#db = db;
    this.#channels = channels;
  }

  async get(id: string, options: TenantOptions = {}): Promise<TaskView> {
    return toTaskView(await this.find(id, options));
  }

  /** Every attempt that did not complete it, oldest first. */
  async failures(id: string, options: TenantOptions = {}): Promise<TaskFailure[]> {
    await this.find(id, options);
    return (await readFailures(this.#db, id, options.tenant)).map(toTaskFailure);
  }

  /** Newest first. */
  async list(options: ListTasksOptions = {}): Promise<TaskView[]> {
    return (await this.findAll(options)).map(toTaskView);
  }

  /** The same as rows, whose payload and result are JSON as it was written. */
  async findAll(options: ListTasksOptions = {}): Promise<readonly TaskRow[]> {
    return (await this.findPage(options)).rows;
  }

  /** The same, having looked at no more than so many rows of each table. Defaults to all. */
  async findPage(options: ListTasksOptions = {}, look?: number): Promise<TaskPage> {
    const known = ["queue", "queues", "tenant", "partitionKey", "state", "before", "limit"];
    refuseUnknown("list", options, known);
    const { limit = 50, state, before, queue, queues, ...filter } = options;
    requireNumber("limit", limit, { min: 1, max: 1_000, integer: true });
    if (state !== undefined) requireOneOf("state", state, STATES);
    if (before !== undefined) requireTaskId(before);
    const of = queue === undefined ? queues : [queue];
    return await listTasks(this.#db, { ...filter, queues: of, state, before, limit, look });
  }

  /** A waiting task never runs; a running one is told by its signal, and ends when it heeds. */
  async cancel(
    id: string,
    options: TenantOptions & { readonly reason?: string } = {},
  ): Promise<"cancelled" | "cancelling"> {
    refuseUnknown("cancel", options, ["reason", "tenant", "queues"]);
    requireTaskId(id);
    const { reason = "cancelled by request", tenant, queues } = options;
    if (queues !== undefined) await this.find(id, options); // No task ever changes its queue.
    // Between the statements it may have been claimed, or put back.
    for (let tries = 0; tries < 3; tries += 1) {
      await this.#openPackOf(id, tenant);
      const cancelled = await this.#announced((tx) => cancelWaiting(tx, id, reason, tenant));
      if (cancelled) return "cancelled";
      const cancelling = await this.#announced((tx) => cancelRunning(tx, id, reason, tenant));
      if (cancelling) return "cancelling";
    }
    const { state } = await this.find(id, options);
    throw new ConflictError(`task ${id} is ${state}: there is nothing to cancel`);
  }

  /** Runs now what waits for its time; gives another life to what failed, died or was cancelled. */
  async retry(id: string, options: TenantOptions = {}): Promise<void> {
    const { tenant } = options;
    const { state } = await this.find(id, options);
    await this.#openPackOf(id, tenant);
    const isDone = await this.#announced(async (tx) => {
      const isBack =
        (await hurryTask(tx, id, tenant)) ||
        (await redriveDeadLetters(tx, { ids: [id], tenant }, 1)).length === 1 ||
        (await reviveTask(tx, id, tenant));
      if (isBack) await notify(tx, this.#channels.tasks, "");
      return isBack;
    });
    if (!isDone) throw new ConflictError(`task ${id} is ${state}: there is nothing to retry`);
  }

  /**
   * Deletes tasks from history that ended before an instant, at most so many. Nobody needs to: what
   * is older than `historyDays` goes by itself, and more cheaply.
   */
  async forgetEnded(
    edge: EndedBefore,
    limit: number,
    { tenant, queues }: TenantOptions = {},
  ): Promise<{ readonly deleted: number; readonly edge: Date }> {
    requireNumber("limit", limit, { min: 1, max: 10_000, integer: true });
    return await deleteEnded(this.#db, edge, limit, { tenant, queues });
  }

  /** Why the task is not running, in a sentence. */
  async why(id: string, options: WhyOptions = {}): Promise<string> {
    const { withPauseReason = true, ...scope } = options;
    const row = await this.find(id, scope);
    const facts = await readWhy(this.#db, id, scope.tenant);
    const isAll = withPauseReason || facts === undefined;
    return explain(row, isAll ? facts : { ...facts, pause_reason: null });
  }

  async #announced(act: (tx: Queryable) => Promise<boolean>): Promise<boolean> {
    return await announced(this.#db, this.#channels.changes, act);
  }

  /** A task of a pack becomes a row, unless it is another tenant's. */
  async #openPackOf(id: string, tenant: string | undefined): Promise<void> {
    const isOpened = await openPackOf(this.#db, id, tenant);
    if (isOpened) await notify(this.#db, this.#channels.tasks, "");
  }

  /** As a row, whose payload and result are JSON as it was written. */
  async find(id: string, { tenant, queues }: TenantOptions = {}): Promise<TaskRow> {
    requireTaskId(id);
    const [row] = await findTasks(this.#db, [id], { tenant, queues });
    if (row === undefined) {
      throw new NotFoundError(`there is no task ${id}, or its history was dropped`);
    }
    return row;
  }
}

export function requireTaskId(id: unknown): void {
  if (typeof id === "string" && /^[1-9]\d{0,17}$/.test(id)) return;
  throw new InvalidInputError(`a task id is a number such as "4711", not ${JSON.stringify(id)}`);
}
