import { InvalidInputError } from "../base/errors.ts";
import { childLogger, type Logger } from "../base/log.ts";
import type { LeaseToken } from "./task.ts";

/** What a context shows of the task that its handler runs. */
export interface ContextTask {
  readonly id: string;
  readonly queue: string;
  readonly attempt: number;
  readonly token: LeaseToken;
  readonly leaseUntil: Date;
  /** Set once something asks for the handler's signal, or must abort it. */
  abort: AbortController | undefined;
}

/** How the context reaches whoever holds the lease. */
export interface ContextActs<Held extends ContextTask> {
  readonly workerId: string;
  readonly logger: Logger;
  extend(task: Held, seconds: number): Promise<Date>;
  progress(task: Held, json: string): Promise<void>;
}

/**
 * What a handler has in its hands, with a database or through a server. Made per task, so it holds
 * nothing that is not asked for.
 */
export abstract class HandlerContext<Held extends ContextTask, Acts extends ContextActs<Held>> {
  protected readonly task: Held;
  protected readonly acts: Acts;
  #log: Logger | undefined;

  constructor(task: Held, acts: Acts) {
    this.task = task;
    this.acts = acts;
  }

  get signal(): AbortSignal {
    this.task.abort ??= new AbortController();
    return this.task.abort.signal;
  }
  get token(): LeaseToken {
    return this.task.token;
  }
  get leaseUntil(): Date {
    return this.task.leaseUntil;
  }
  get workerId(): string {
    return this.acts.workerId;
  }
  get log(): Logger {
    const { id, queue, attempt } = this.task;
    this.#log ??= childLogger(this.acts.logger, { task: id, queue, attempt });
    return this.#log;
  }

  async extend(seconds: number): Promise<Date> {
    if (!Number.isFinite(seconds) || seconds <= 0) {
      throw new InvalidInputError(`extend needs a number of seconds above 0, not ${seconds}`);
    }
    return await this.acts.extend(this.task, seconds);
  }

  async progress(value: unknown): Promise<void> {
    const json: string | undefined = JSON.stringify(value);
    if (json === undefined) throw new InvalidInputError("progress must be something JSON can say");
    await this.acts.progress(this.task, json);
  }
}
