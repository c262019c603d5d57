/** What waits for an answer, and how much of it there may be. */
export interface WindowLimits {
  readonly tasksMax: number;
  readonly bytesMax: number;
  /** Calls that wait for room. */
  readonly waitersMax: number;
}

interface Waiter {
  readonly tasks: number;
  readonly bytes: number;
  readonly deadlineMs: number;
  readonly grant: () => void;
  readonly expire: () => void;
}

/**
 * Counts tasks and bytes from when they are queued until they are answered. Whoever finds it full
 * waits, in the order of the calls. What is larger than all of it is let in alone.
 */
export class Window {
  readonly #limits: WindowLimits;
  readonly #waiters: Waiter[] = [];
  #tasks = 0;
  #bytes = 0;

  constructor(limits: WindowLimits) {
    this.#limits = limits;
  }

  get tasks(): number {
    return this.#tasks;
  }

  get bytes(): number {
    return this.#bytes;
  }

  get waiting(): number {
    return this.#waiters.length;
  }

  /** Takes room, if there is some and nobody waits for it. */
  tryTake(tasks: number, bytes: number): boolean {
    if (this.#waiters.length > 0 || !this.#fits(tasks, bytes)) return false;
    this.#tasks += tasks;
    this.#bytes += bytes;
    return true;
  }

  /** Calls back once: when the room was taken, or at the deadline. False: too many wait. */
  wait(waiter: Waiter): boolean {
    if (this.#waiters.length >= this.#limits.waitersMax) return false;
    this.#waiters.push(waiter);
    return true;
  }

  release(tasks: number, bytes: number): void {
    this.#tasks -= tasks;
    this.#bytes -= bytes;
    this.#giveOut();
  }

  /** Sends away those whose time is up. */
  expire(nowMs: number): void {
    const late = this.#waiters.filter(({ deadlineMs }) => deadlineMs <= nowMs);
    if (late.length === 0) return;
    const left = this.#waiters.filter(({ deadlineMs }) => deadlineMs > nowMs);
    this.#waiters.splice(0, this.#waiters.length, ...left);
    for (const { expire } of late) expire();
    this.#giveOut();
  }

  /** Sends everybody away. */
  clear(): void {
    this.expire(Infinity);
  }

  #giveOut(): void {
    for (;;) {
      const [first] = this.#waiters;
      if (first === undefined || !this.#fits(first.tasks, first.bytes)) return;
      this.#waiters.shift();
      this.#tasks += first.tasks;
      this.#bytes += first.bytes;
      first.grant();
    }
  }

  #fits(tasks: number, bytes: number): boolean {
    if (this.#tasks === 0) return true;
    const { tasksMax, bytesMax } = this.#limits;
    return this.#tasks + tasks <= tasksMax && this.#bytes + bytes <= bytesMax;
  }
}
