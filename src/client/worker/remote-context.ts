import { ConfigError, InvalidInputError } from "../../base/errors.ts";
import { childLogger, type Logger } from "../../base/log.ts";
import type { TaskContext } from "../../tasks/context.ts";
import type { LeaseToken } from "../../tasks/task.ts";
import type { RemoteTask } from "./remote-task.ts";

/** How the context reaches the server. */
export interface ContextActs {
  readonly workerId: string;
  readonly logger: Logger;
  extend(task: RemoteTask, seconds: number): Promise<Date>;
  progress(task: RemoteTask, json: string): Promise<void>;
}

/** Made per task, so it holds nothing that is not asked for. */
export class RemoteContext implements TaskContext {
  readonly #task: RemoteTask;
  readonly #acts: ContextActs;
  #log: Logger | undefined;

  constructor(task: RemoteTask, acts: ContextActs) {
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

  /** A transaction cannot cross the wire. */
  complete(): Promise<void> {
    return Promise.reject(
      new ConfigError(
        "complete(tx) needs a worker with the database, and this one runs through a server: " +
          "return completed(result) instead, or run this handler with mill.startWorker",
      ),
    );
  }
}
