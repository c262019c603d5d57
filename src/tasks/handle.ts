import type { ResultOptions, ResultWaiter } from "./results.ts";

/** A task that was enqueued. */
export class TaskHandle<Result = unknown> {
  readonly id: string;
  readonly queue: string;
  readonly #results: ResultWaiter;

  constructor(id: string, queue: string, results: ResultWaiter) {
    this.id = id;
    this.queue = queue;
    this.#results = results;
  }

  /** Its result once it has completed; rejects with TaskFailedError when it will not. */
  async result(options: ResultOptions = {}): Promise<Result> {
    return (await this.#results.wait(this.id, options)) as Result;
  }
}
