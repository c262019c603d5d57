import { InvalidInputError } from "../base/errors.ts";
import { childLogger, type Logger } from "../base/log.ts";
import type { SqlExecutor } from "../db/executor.ts";
import type { ClaimedTask } from "./claimed-task.ts";
import type { TaskContext } from "./context.ts";
import type { LeaseToken } from "./task.ts";

/** How the context reaches the database. */
export interface TaskActs {
  readonly workerId: string;
  readonly logger: Logger;
  /** The handler is about to do something with the lease of this task alone. */
  usesLease(task: ClaimedTask): void;
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
    this.#acts.usesLease(this.#task);
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
