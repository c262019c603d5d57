/** Where claimed tasks run. */
export interface Slots {
  /** All of them, taken or free. */
  readonly count: number;
  /** So many are for tasks of its priority and above only. Undefined: none are. */
  readonly reserve?: SlotReserve | undefined;
  /**
   * Those in which tasks of the queue may run; asked for once.
   *
   * @param limit of its handler, if it has one of its own, which may change
   */
  of(queue: string, limit?: SlotLimit): QueueSlots;
}

export type SlotLimit = number | (() => number);

export interface SlotReserve {
  readonly count: number;
  readonly priority: number;
}

/** Of a part of so many slots, as many as are reserved of all. */
export function shareOfReserve(reserve: SlotReserve, slots: number, part: number): number {
  return Math.floor((reserve.count * Math.min(part, slots)) / slots);
}

export interface QueueSlots {
  /** How many more tasks may start: of the tenant, or of anybody. */
  free(tenant?: string): number;
  /** How many below the priority of the reserve may run at once. Undefined: as many as of all. */
  readonly belowMax?: number | undefined;
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

  of(_queue: string, limit: SlotLimit = this.count): QueueSlots {
    const { count, reserve } = this;
    const limitNow = typeof limit === "number" ? () => limit : limit;
    return new CountedSlots(
      () => Math.min(limitNow(), count),
      (now) => (reserve === undefined ? 0 : shareOfReserve(reserve, count, now)),
    );
  }
}

class CountedSlots implements QueueSlots {
  readonly #limit: () => number;
  readonly #reserved: (limit: number) => number;
  #taken = 0;

  constructor(limit: () => number, reserved: (limit: number) => number) {
    this.#limit = limit;
    this.#reserved = reserved;
  }

  get belowMax(): number {
    const limit = this.#limit();
    return limit - this.#reserved(limit);
  }

  free(): number {
    return this.#limit() - this.#taken;
  }

  take(): void {
    this.#taken += 1;
  }

  release(): void {
    this.#taken -= 1;
  }
}
