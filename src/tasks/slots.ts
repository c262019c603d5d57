/** Where claimed tasks run. */
export interface Slots {
  /** All of them, taken or free. */
  readonly count: number;
  /** Those in which tasks of the queue may run; asked for once. */
  of(queue: string): QueueSlots;
}

export interface QueueSlots {
  /** How many more tasks may start: of the tenant, or of anybody. */
  free(tenant?: string): number;
  /** A task has started. */
  take(): void;
  /** Its handler has returned. */
  release(): void;
  /** Whether tasks of the tenant may start. Undefined: every slot is for everybody. */
  readonly isOpen?: (tenant: string) => boolean;
}

/** Handlers in this process: so many at once, of one queue perhaps fewer. */
export class HandlerSlots implements Slots {
  readonly count: number;
  readonly #limits: ReadonlyMap<string, number>;

  /** @param limits of queues that have one of their own */
  constructor(count: number, limits: ReadonlyMap<string, number>) {
    this.count = count;
    this.#limits = limits;
  }

  of(queue: string): QueueSlots {
    return new CountedSlots(Math.min(this.#limits.get(queue) ?? this.count, this.count));
  }
}

class CountedSlots implements QueueSlots {
  readonly #limit: number;
  #taken = 0;

  constructor(limit: number) {
    this.#limit = limit;
  }

  free(): number {
    return this.#limit - this.#taken;
  }

  take(): void {
    this.#taken += 1;
  }

  release(): void {
    this.#taken -= 1;
  }
}
