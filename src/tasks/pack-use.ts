import type { Clock } from "../base/clock.ts";

/** How the last packs of one queue went. */
interface Record {
  completed: number;
  opened: number;
  byRowUntilMs: number;
}

/** So many packs tell how the next ones will go. */
const SAMPLE = 16;
/** After that, packs are tried again. */
const BY_ROW_MS = 10_000;

/**
 * Whether packs of a queue are worth taking whole. One that is opened by the worker that took it
 * costs more than rows do, one that completes saves twice that: so when more are opened than
 * complete, because tasks take too long or fail too often, the queue is claimed by rows for a
 * while. A queue whose handlers use leases is, from then on.
 */
export class PackUse {
  readonly #clock: Clock;
  readonly #records = new Map<string, Record>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  isByRow(queue: string): boolean {
    return (this.#records.get(queue)?.byRowUntilMs ?? 0) > this.#clock.now();
  }

  /** Its handlers do something with the lease of one task. */
  neverWhole(queue: string): void {
    this.#recordOf(queue).byRowUntilMs = Infinity;
  }

  completed(queue: string): void {
    this.#recordOf(queue).completed += 1;
    this.#judge(queue);
  }

  opened(queue: string): void {
    this.#recordOf(queue).opened += 1;
    this.#judge(queue);
  }

  #judge(queue: string): void {
    const record = this.#recordOf(queue);
    if (record.completed + record.opened < SAMPLE) return;
    if (record.opened > record.completed) {
      record.byRowUntilMs = Math.max(record.byRowUntilMs, this.#clock.now() + BY_ROW_MS);
    }
    record.completed = 0;
    record.opened = 0;
  }

  #recordOf(queue: string): Record {
    let record = this.#records.get(queue);
    if (record === undefined) {
      record = { completed: 0, opened: 0, byRowUntilMs: 0 };
      this.#records.set(queue, record);
    }
    return record;
  }
}
