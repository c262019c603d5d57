import type { Clock } from "../base/clock.ts";
import type { Executor } from "./executor.ts";
import type { KeySpace } from "./key-space.ts";
import type { Below } from "./lanes.ts";
import { Prefetch } from "./prefetch.ts";

/** Keyed tasks of one key space, as far as demand for them goes. */
export interface KeyedSource {
  readonly space: Pick<KeySpace, "tenant" | "queues">;
  /** Whether a task of it is ready to start. */
  readonly isHere: boolean;
  /** How many wait here behind others of their key; of one key no more than a few. */
  readonly behind: number;
}

/** How many tasks a worker asks for, and of whom. */
export interface Demand {
  /** Takes in how fast tasks end here. */
  measure(): void;
  /** How many to ask for now. */
  readonly want: number;
  /** Of these, no more of low priority. Undefined: any may be. */
  readonly below?: Below | undefined;
  /** Whether it is worth finding out: asked whenever a slot comes free. */
  readonly mayWant: boolean;
  /** How many of the queue there is room for, whoever's they are; of a priority, or of any. */
  roomOf(queue: string, priority?: number): number;
  /** How many of the tenant in the queue. Infinity: the queue's room is everybody's. */
  roomOfTenant(queue: string, tenant: string): number;
  /** How many tasks of the queue are held ready, as so many are done in no time. */
  aheadOf(queue: string): number;
  wantKeyed(source: KeyedSource): number;
  /** Whether what is wanted may be anybody's, so that spaces share it. */
  readonly isForAll: boolean;
  /** Of a key of the tenant of which so many wait here, no more are asked for. */
  perKey(tenant: string): number;
  /** All lanes were asked. */
  filled(): void;
  /** How many to ask for of lanes that have nothing here, while no more is wanted of all. */
  readonly reserve: number;
}

export interface HandlerDemandOptions {
  readonly clock: Clock;
  readonly concurrency: number;
  readonly fairnessTurn: number;
}

/** What handlers in this process ask for: as many as there are slots, and a prefetch. */
export class HandlerDemand implements Demand {
  readonly isForAll = true;
  readonly #executor: Executor;
  readonly #prefetch: Prefetch;
  readonly #turn: number;

  constructor(executor: Executor, { clock, concurrency, fairnessTurn }: HandlerDemandOptions) {
    this.#executor = executor;
    this.#prefetch = new Prefetch(clock, concurrency);
    this.#turn = fairnessTurn;
  }

  measure(): void {
    this.#prefetch.measure(this.#executor.settledCount);
  }

  get want(): number {
    return this.#prefetch.want(this.#executor);
  }

  get below(): Below | undefined {
    const { below } = this.#executor.lines;
    return below && { ...below, tasks: below.tasks + this.#prefetch.size };
  }

  get mayWant(): boolean {
    return this.want > 0;
  }

  roomOf(queue: string, priority?: number): number {
    return this.#executor.lines.freeSlotsFor(queue, priority) + this.#prefetch.size;
  }

  roomOfTenant(): number {
    return Infinity;
  }

  aheadOf(): number {
    return this.#prefetch.size;
  }

  wantKeyed(source: KeyedSource): number {
    const { active, ready, unanswered, keys } = this.#executor;
    const room = this.#prefetch.wantKeyed({ active, ready, unanswered, behind: keys.ahead });
    if (this.want > 0) return room;
    if (source.isHere) return 0;
    // As for others that have nothing here, however long all slots have been taken.
    const reserve = keys.waiting > 0 ? 0 : this.reserve;
    return Math.min(Math.max(room, reserve), this.#turn);
  }

  perKey(): number {
    return this.#prefetch.perKey;
  }

  filled(): void {
    this.#prefetch.filled(this.#executor.ready);
  }

  get reserve(): number {
    return this.#prefetch.reserve(this.#executor.ready, this.#turn);
  }
}
