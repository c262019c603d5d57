import type { Clock } from "../../base/clock.ts";
import type { Demand, KeyedSource } from "../../tasks/demand.ts";
import type { Executor } from "../../tasks/executor.ts";
import { PER_KEY_MAX } from "../../tasks/prefetch.ts";
import type { OrderBook } from "./order-book.ts";

/** As much as is served in this time is worth holding ready. */
const AHEAD_SECONDS = 0.1;
const AHEAD_MAX = 2_000;
/** Fewer are not worth keeping from other servers. */
const AHEAD_MIN = 20;
const MEASURE_MS = 20;
const UNANSWERED_MAX = 4_000;
/** In one claim, however much is ordered. */
const WANT_MAX = 2_000;
const PER_KEY_MIN = 2;

/** How fast the orders of one tenant are served. */
interface Pace {
  served: number;
  measured: number;
  perSecond: number;
  ahead: number;
}

/**
 * What remote workers ask for: as many tasks as their orders take, and as many more as are served
 * in a tenth of a second, so that the next order need not wait for a claim. Each tenant's pace
 * counts for itself: a fast one must not make a server hold tasks of a slow one.
 */
export class OrderDemand implements Demand {
  readonly isForAll = false;
  readonly #executor: Executor;
  readonly #orders: OrderBook;
  readonly #clock: Clock;
  readonly #paces = new Map<string, Pace>();
  #measuredAtMs: number;
  /** More was wanted when it was last asked than could be had. */
  #isHungry = false;

  constructor(executor: Executor, orders: OrderBook, clock: Clock) {
    this.#executor = executor;
    this.#orders = orders;
    this.#clock = clock;
    this.#measuredAtMs = clock.now();
  }

  /** A task of the tenant was handed out. */
  served(tenant: string): void {
    let pace = this.#paces.get(tenant);
    if (pace === undefined) {
      pace = { served: 0, measured: 0, perSecond: 0, ahead: 0 };
      this.#paces.set(tenant, pace);
    }
    pace.served += 1;
  }

  measure(): void {
    const elapsedMs = this.#clock.now() - this.#measuredAtMs;
    if (elapsedMs < MEASURE_MS) return;
    this.#measuredAtMs = this.#clock.now();
    for (const [tenant, pace] of this.#paces) {
      const rate = ((pace.served - pace.measured) / elapsedMs) * 1000;
      // Follows a rise at once, a fall by halves: a pause is no news.
      pace.perSecond = Math.max(rate, (pace.perSecond + rate) / 2);
      pace.measured = pace.served;
      const ahead = Math.floor(pace.perSecond * AHEAD_SECONDS);
      pace.ahead = ahead < AHEAD_MIN ? 0 : Math.min(AHEAD_MAX, ahead);
      if (pace.perSecond < 1) this.#paces.delete(tenant);
    }
  }

  get want(): number {
    if (this.#executor.unanswered > UNANSWERED_MAX) {
      this.#isHungry = true;
      return 0;
    }
    let want = 0;
    for (const tenant of this.#orders.tenants) want += this.#wantOf(tenant);
    return Math.min(want, WANT_MAX);
  }

  /**
   * Whoever orders says so. Otherwise an end here makes a difference only to what could not be had
   * when it was asked for: limits, probation, ends that were not answered.
   */
  get mayWant(): boolean {
    return this.#isHungry && this.want > 0;
  }

  /** Whether an order of the tenant lacks tasks, or soon will. */
  lacks(tenant: string): boolean {
    return this.#wantOf(tenant) > 0;
  }

  /** Nothing while more than half of what is held ahead is left. */
  #wantOf(tenant: string): number {
    const ahead = this.#paces.get(tenant)?.ahead ?? 0;
    const total = this.#orders.totalOf(tenant);
    const ready = this.#readyOf(tenant);
    return ready > total + ahead / 2 ? 0 : Math.max(0, total + ahead - ready);
  }

  /** Of queues that somebody orders: what waits of others is no help. */
  #readyOf(tenant: string): number {
    const { lines } = this.#executor;
    let ready = 0;
    for (const queue of lines.names) {
      if (this.#orders.credit(queue, tenant) === 0) continue;
      ready += lines.readyOf(queue)?.readyOf(tenant) ?? 0;
    }
    return ready;
  }

  roomOf(): number {
    return Infinity;
  }

  roomOfTenant(queue: string, tenant: string): number {
    const credit = this.#orders.credit(queue, tenant);
    if (credit === 0) return 0; // Nobody asks for this queue: it is not held ahead either.
    const ready = this.#executor.lines.readyOf(queue)?.readyOf(tenant) ?? 0;
    const ahead = this.#paces.get(tenant)?.ahead ?? 0;
    return Math.min(credit + ahead - ready, this.#wantOf(tenant));
  }

  aheadOf(): number {
    let most = 0;
    for (const { ahead } of this.#paces.values()) most = Math.max(most, ahead);
    return most;
  }

  /**
   * As many as orders of the tenant take of these queues, and as many more as it is served ahead.
   * Tasks wait for others of their key, so that twice as many are held; but what waits must not
   * keep other keys from orders that stand. In few, large claims.
   */
  wantKeyed({ space, behind }: KeyedSource): number {
    if (this.#executor.unanswered > UNANSWERED_MAX) {
      this.#isHungry = true;
      return 0;
    }
    const { tenant, queues } = space;
    let [credit, ready] = [0, 0];
    for (const queue of queues) {
      const ofQueue = this.#orders.credit(queue, tenant);
      if (ofQueue === 0) continue;
      credit = Math.max(credit, ofQueue); // One order may name several.
      ready += this.#executor.lines.readyOf(queue)?.readyOf(tenant) ?? 0;
    }
    if (credit === 0) return 0;
    const most = 2 * (credit + (this.#paces.get(tenant)?.ahead ?? 0));
    const room = most - ready - behind;
    return Math.min(WANT_MAX, Math.max(room < most / 4 ? 0 : room, credit - ready, 0));
  }

  perKey(tenant: string): number {
    const ahead = this.#paces.get(tenant)?.ahead ?? 0;
    return Math.max(PER_KEY_MIN, Math.min(PER_KEY_MAX, ahead));
  }

  filled(): void {
    this.#isHungry = this.want > 0;
  }

  get reserve(): number {
    return 0;
  }
}
