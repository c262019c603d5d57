/** Where claimed tasks run. */
export interface Slots {
  /** All of them, taken or free. */
  readonly count: number;
  /** So many are for tasks of its priority and above only. Undefined: none are. */
  readonly reserve?: SlotReserve | undefined;
  /**
   * Those in which tasks of the queue may run; asked for once.
   *
   * @param limit of its handler, if it has one of its own
   */
  of(queue: string, limit?: number): QueueSlots;
}

export interface SlotReserve {
  readonly count: number;
  readonly priority: number;
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
  readonly reserve: SlotReserve | undefined;

  constructor(count: number, reserve?: SlotReserve) {
    this.count = count;
    this.reserve = reserve;
  }

  of(_queue: string, limit = this.count): QueueSlots {
    return new CountedSlots(Math.min(limit, this.count));
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
