import type { Clock } from "../base/clock.ts";
import { NotFoundError, TidemillError, TimeoutError } from "../base/errors.ts";
import type { Queryable } from "../db/database.ts";
import { findTasks, type TaskRow } from "./sql/inspect.ts";
import { toTaskView } from "./view.ts";

/** The task that was waited for ended without a result: it failed, died or was cancelled. */
export class TaskFailedError extends TidemillError {
  readonly code = "TM_TASK_FAILED";
  readonly retryable = false;
  readonly taskId: string;
  readonly state: "failed" | "dead" | "cancelled";

  constructor(taskId: string, state: TaskFailedError["state"], reason: string) {
    const end = { failed: "failed", dead: "died", cancelled: "was cancelled" }[state];
    super(`task ${taskId} ${end}: ${reason}`);
    this.taskId = taskId;
    this.state = state;
  }
}

export interface ResultOptions {
  /** Defaults to 30,000. */
  readonly timeoutMs?: number;
  /** Only a task of this tenant; one of another is not found. Defaults to any. */
  readonly tenant?: string;
}

export interface EndOptions extends ResultOptions {
  /** Only a task of these queues; one of another is not found. Defaults to any. */
  readonly queues?: readonly string[];
  /** Ends the wait with what was seen last. */
  readonly signal?: AbortSignal;
}

interface Wait {
  readonly id: string;
  readonly tenant: string | undefined;
  readonly deadlineMs: number;
  /** Undefined when there is no such task. */
  resolve(row: TaskRow | undefined): void;
  reject(error: Error): void;
  seen: TaskRow | undefined;
}

const POLL_MS_MIN = 10;
const POLL_MS_MAX = 250;
const LIVE: readonly TaskRow["state"][] = ["scheduled", "pending", "running"];

export const hasEnded = ({ state }: TaskRow): boolean => !LIVE.includes(state);

/**
 * Waits for the ends of tasks: one statement asks for all of one tenant that are waited for in this
 * process, and one tenant is asked for after the other.
 */
export class ResultWaiter {
  readonly #of: (tenant: string | undefined) => Queryable;
  readonly #clock: Clock;
  readonly #waits = new Set<Wait>();
  #pollMs = POLL_MS_MIN;
  #cancelPoll: (() => void) | undefined;
  #isPolling = false;
  #isClosed = false;

  /** @param of where the tasks of a tenant, or of any, are looked for */
  constructor(of: (tenant: string | undefined) => Queryable, clock: Clock) {
    this.#of = of;
    this.#clock = clock;
  }

  /** The result of a task once it has completed; rejects when it will not, or has not in time. */
  async wait(id: string, options: ResultOptions): Promise<unknown> {
    const row = await this.end(id, options);
    const { state, reason } = row;
    if (state === "completed") return toTaskView(row).result;
    if (state === "failed" || state === "dead" || state === "cancelled") {
      throw new TaskFailedError(id, state, reason ?? "no reason given");
    }
    throw new TimeoutError(`task ${id} had not ended in time`);
  }

  /** The task when it has ended, or as it is when the time is over. */
  async end(id: string, options: EndOptions): Promise<TaskRow> {
    const { timeoutMs = 30_000, tenant, queues, signal } = options;
    const row = await new Promise<TaskRow | undefined>((resolve, reject) => {
      const deadlineMs = this.#clock.now() + timeoutMs;
      const wait: Wait = { id, tenant, deadlineMs, resolve, reject, seen: undefined };
      this.#waits.add(wait);
      signal?.addEventListener("abort", () => this.#expire(wait, true), { once: true });
      this.#pollMs = POLL_MS_MIN;
      this.#schedule();
    });
    if (row === undefined || (queues !== undefined && !queues.includes(row.queue))) {
      throw new NotFoundError(`there is no task ${id}, or its history was dropped`);
    }
    return row;
  }

  close(): void {
    this.#isClosed = true;
    this.#cancelPoll?.();
    for (const wait of this.#waits) {
      wait.reject(new TimeoutError(`closed while waiting for task ${wait.id}`));
    }
    this.#waits.clear();
  }

  #schedule(): void {
    this.#cancelPoll?.();
    this.#cancelPoll = this.#clock.after(this.#pollMs, () => {
      this.#cancelPoll = undefined;
      void this.#poll();
    });
  }

  async #poll(): Promise<void> {
    if (this.#isPolling) return; // It schedules the next when it is done.
    this.#isPolling = true;
    const tenants = new Set([...this.#waits].map((wait) => wait.tenant));
    for (const tenant of tenants) await this.#look(tenant);
    this.#isPolling = false;
    this.#pollMs = Math.min(POLL_MS_MAX, this.#pollMs * 1.5);
    if (this.#waits.size > 0 && !this.#isClosed) this.#schedule();
  }

  async #look(tenant: string | undefined): Promise<void> {
    const waits = [...this.#waits].filter((wait) => wait.tenant === tenant);
    const ids = [...new Set(waits.map((wait) => wait.id))];
    try {
      const rows = await findTasks(this.#of(tenant), ids, { tenant });
      const byId = new Map(rows.map((row) => [row.id, row]));
      for (const wait of waits) this.#check(wait, byId.get(wait.id));
    } catch {
      // The database may be back before the deadline; the wait says what happened if it is not.
      for (const wait of waits) this.#expire(wait);
    }
  }

  #check(wait: Wait, row: TaskRow | undefined): void {
    wait.seen = row;
    if (row === undefined || hasEnded(row)) {
      if (this.#waits.delete(wait)) wait.resolve(row);
    } else {
      this.#expire(wait);
    }
  }

  #expire(wait: Wait, isOver = this.#clock.now() >= wait.deadlineMs): void {
    if (!isOver || !this.#waits.delete(wait)) return;
    if (wait.seen !== undefined) wait.resolve(wait.seen);
    else wait.reject(new TimeoutError(`task ${wait.id} could not be looked at in time`));
  }
}
