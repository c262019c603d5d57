/** Something that runs until its signal aborts. It rejects only when it cannot go on. */
export interface Service {
  readonly name: string;
  run(signal: AbortSignal): Promise<void>;
}

/** Services that stop at once: together they take as long as the slowest. */
export type Stage = Service | readonly Service[];

/**
 * Runs services as one unit: starts them in the given order, stops them in reverse, each stage
 * fully before the next, and stops all of them when any one ends. There is exactly one supervisor
 * per worker; services never start other services.
 */
export class Supervisor implements AsyncDisposable {
  /** Settles when every service has stopped; rejects with the failures, if there were any. */
  readonly finished: Promise<void>;
  readonly #stages: { readonly abort: AbortController; readonly ended: Promise<void[]> }[] = [];
  readonly #failures: unknown[] = [];
  #stopping: Promise<void> | undefined;

  constructor(stages: readonly Stage[]) {
    let announceEnd: () => void = () => {};
    const firstEnd = new Promise<void>((resolve) => {
      announceEnd = resolve;
    });
    for (const stage of stages) {
      const abort = new AbortController();
      const ended = [stage].flat().map((service) =>
        service
          .run(abort.signal)
          .catch((error: unknown) => {
            this.#failures.push(error);
          })
          .finally(announceEnd),
      );
      this.#stages.push({ abort, ended: Promise.all(ended) });
    }
    this.finished = firstEnd.then(() => this.stop());
    this.finished.catch(() => {}); // Observed by whoever awaits it; never an unhandled rejection.
  }

  stop(): Promise<void> {
    this.#stopping ??= this.#stopInReverse();
    return this.#stopping;
  }

  async #stopInReverse(): Promise<void> {
    for (const { abort, ended } of this.#stages.toReversed()) {
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
