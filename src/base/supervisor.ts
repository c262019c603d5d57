/** Something that runs until its signal aborts. It rejects only when it cannot go on. */
export interface Service {
  readonly name: string;
  run(signal: AbortSignal): Promise<void>;
}

/**
 * Runs services as one unit: starts them in the given order, stops them in reverse, each fully
 * before the next, and stops all of them when any one ends. There is exactly one supervisor per
 * worker; services never start other services.
 */
export class Supervisor implements AsyncDisposable {
  /** Settles when every service has stopped; rejects with the failures, if there were any. */
  readonly finished: Promise<void>;
  readonly #entries: { readonly abort: AbortController; readonly ended: Promise<void> }[] = [];
  readonly #failures: unknown[] = [];
  #stopping: Promise<void> | undefined;

  constructor(services: readonly Service[]) {
    let announceEnd: () => void = () => {};
    const firstEnd = new Promise<void>((resolve) => {
      announceEnd = resolve;
    });
    for (const service of services) {
      const abort = new AbortController();
      const ended = service
        .run(abort.signal)
        .catch((error: unknown) => {
          this.#failures.push(error);
        })
        .finally(announceEnd);
      this.#entries.push({ abort, ended });
    }
    this.finished = firstEnd.then(() => this.stop());
    this.finished.catch(() => {}); // Observed by whoever awaits it; never an unhandled rejection.
  }

  stop(): Promise<void> {
    this.#stopping ??= this.#stopInReverse();
    return this.#stopping;
  }

  async #stopInReverse(): Promise<void> {
    for (const { abort, ended } of this.#entries.toReversed()) {
      abort.abort();
      await ended;
    }
    if (this.#failures.length === 1) throw this.#failures[0];
    if (this.#failures.length > 1) throw new AggregateError(this.#failures, "services failed");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }
}
