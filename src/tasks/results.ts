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
}

interface Wait {
  readonly id: string;
  readonly deadlineMs: number;
  resolve(value: unknown): void;
  reject(error: Error): void;
}

const POLL_MS_MIN = 10;
const POLL_MS_MAX = 250;

/** Waits for the ends of tasks: one statement asks for all that are waited for in this process. */
export class ResultWaiter {
  readonly #db: Queryable;
  readonly #clock: Clock;
  readonly #waits = new Set<Wait>();
  #pollMs = POLL_MS_MIN;
  #cancelPoll: (() => void) | undefined;

  constructor(db: Queryable, clock: Clock) {
    this.#db = db;
    this.#clock = clock;
  }

  async wait(id: string, { timeoutMs = 30_000 }: ResultOptions): Promise<unknown> {
    return await new Promise((resolve, reject) => {
      const deadlineMs = this.#clock.now() + timeoutMs;
      this.#waits.add({ id, deadlineMs, resolve, reject });
      this.#pollMs = POLL_MS_MIN;
      this.#schedule();
    });
  }

  close(): void {
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
    const ids = [...new Set([...this.#waits].map((wait) => wait.id))];
    try {
      const rows = await findTasks(this.#db, ids);
      const byId = new Map(rows.map((row) => [row.id, row]));
      for (const wait of this.#waits) this.#check(wait, byId.get(wait.id));
    } catch {
      // The database may be back before the deadline; the wait says what happened if it is not.
      for (const wait of this.#waits) this.#expire(wait);
    }
    this.#pollMs = Math.min(POLL_MS_MAX, this.#pollMs * 1.5);
    if (this.#waits.size > 0 && this.#cancelPoll === undefined) this.#schedule();
  }

  #check(wait: Wait, row: TaskRow | undefined): void {
    if (row === undefined) {
      this.#waits.delete(wait);
      wait.reject(new NotFoundError(`there is no task ${wait.id}, or its history was dropped`));
    } else if (row.state === "completed") {
      this.#waits.delete(wait);
      wait.resolve(toTaskView(row).result);
    } else if (row.state === "failed" || row.state === "dead" || row.state === "cancelled") {
      this.#waits.delete(wait);
      wait.reject(new TaskFailedError(wait.id, row.state, row.reason ?? "no reason given"));
    } else {
      this.#expire(wait);
    }
  }

  #expire(wait: Wait): void {
    if (this.#clock.now() < wait.deadlineMs) return;
    this.#waits.delete(wait);
    wait.reject(new TimeoutError(`task ${wait.id} had not ended in time`));
  }
}
