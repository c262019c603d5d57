import { InvalidInputError } from "../base/errors.ts";
import { childLogger, type Logger } from "../base/log.ts";
import type { SqlExecutor } from "../db/database.ts";
import type { ClaimedTask } from "./claimed-task.ts";
import type { LeaseToken } from "./task.ts";

/** What a handler may do with the task it runs. */
export interface TaskContext<Result = unknown> {
  /** Aborts when the lease is lost, the task is cancelled or times out, or the worker must stop. */
  readonly signal: AbortSignal;
  /** For `assert_lease` in SQL of your own, and for systems that fence by a growing number. */
  readonly token: LeaseToken;
  /** Until when the claim stands, by the database's clock; it is renewed while the handler runs. */
  readonly leaseUntil: Date;
  readonly workerId: string;
  /** Names the task in everything it writes. */
  readonly log: Logger;
  /** Holds the lease at least so long from now, for work during which renewals may not come. */
  extend(seconds: number): Promise<Date>;
  /** Stored with the task, for people: any JSON. */
  progress(value: unknown): Promise<void>;
  /**
   * Completes the task in your transaction: its effects and its completion commit together, or
   * neither does. Throws LeaseLostError, which must end the transaction, when the lease is lost.
   */
  complete(tx: SqlExecutor, result?: Result): Promise<void>;
}

/** How the context reaches the database. */
export interface TaskActs {
  readonly workerId: string;
  readonly logger: Logger;
  extend(task: ClaimedTask, seconds: number): Promise<Date>;
  progress(task: ClaimedTask, json: string): Promise<void>;
  complete(task: ClaimedTask, tx: SqlExecutor, result: unknown): Promise<void>;
}

/** Made per task, so it holds nothing that is not asked for. */
export class RunningContext implements TaskContext {
  readonly #task: ClaimedTask;
  readonly #acts: TaskActs;
  #log: Logger | undefined;

  constructor(task: ClaimedTask, acts: TaskActs) {
    this.#task = task;
    this.#acts = acts;
  }

  get signal(): AbortSignal {
    this.#task.abort ??= new AbortController();
    return this.#task.abort.signal;
  }
  get token(): LeaseToken {
    return this.#task.token;
  }
  get leaseUntil(): Date {
    return this.#task.leaseUntil;
  }
  get workerId(): string {
    return this.#acts.workerId;
  }
  get log(): Logger {
    const { id, queue, attempt } = this.#task;
    this.#log ??= childLogger(this.#acts.logger, { task: id, queue, attempt });
    return this.#log;
  }

  async extend(seconds: number): Promise<Date> {
    if (!Number.isFinite(seconds) || seconds <= 0) {
      throw new InvalidInputError(`extend needs a number of seconds above 0, not ${seconds}`);
    }
    return await this.#acts.extend(this.#task, seconds);
  }

  async progress(value: unknown): Promise<void> {
    const json: string | undefined = JSON.stringify(value);
    if (json === undefined) throw new InvalidInputError("progress must be something JSON can say");
    await this.#acts.progress(this.#task, json);
  }

  async complete(tx: SqlExecutor, result?: unknown): Promise<void> {
    await this.#acts.complete(this.#task, tx, result);
  }
}
