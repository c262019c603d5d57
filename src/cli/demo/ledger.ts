import { randomBytes } from "node:crypto";
import type { Entry, What } from "../../checker/history.ts";

/** What the shop was told of one order. */
export interface OrderLines {
  readonly order: string;
  readonly entries: readonly Entry[];
  /** Nothing more happens to it, as far as the shop knows. */
  readonly isOver: boolean;
}

/** A ledger as it was. */
export interface Copy {
  readonly next: (most: number) => OrderLines[];
  readonly find: (order: string) => OrderLines | undefined;
}

/** Those that are settled are kept for a while: a late effect is judged with all that is known. */
const SETTLED_MAX = 10_000;

/**
 * What the system promised to the shop, in the memory of the process that was told: the tables
 * cannot be their own witness. Orders leave it once nothing of them is open any more.
 */
export class Ledger {
  /** How the names of its orders begin, which tells them from those of others. */
  readonly run = `${randomBytes(3).toString("hex")}-`;
  /** In the order in which they were last judged. */
  readonly #open = new Map<string, OrderLines>();
  readonly #settled = new Map<string, OrderLines>();
  #tasks = 0;
  #events = 0;
  #orders = 0;

  /** How much was promised. */
  get counts(): { readonly orders: number; readonly events: number; readonly tasks: number } {
    return { orders: this.#orders, events: this.#events, tasks: this.#tasks };
  }

  get openCount(): number {
    return this.#open.size;
  }

  add(order: string, told: readonly What[], { isOver }: { readonly isOver: boolean }): void {
    const before = this.#open.get(order);
    if (before === undefined) this.#orders += 1;
    const entries = told.map((what): Entry => ({ t: Date.now(), proc: "shop", what }));
    for (const what of told) {
      if (what.op === "append" && what.phase === "ok") this.#events += what.names.length;
      if (what.op === "enqueue" && what.phase === "ok") this.#tasks += what.names.length;
    }
    this.#open.set(order, { order, entries: [...(before?.entries ?? []), ...entries], isOver });
  }

  /**
   * As it is now: what is promised later may not be in tables that are read from here on. Those
   * come first that were judged longest ago.
   */
  copy(): Copy {
    const open = new Map(this.#open);
    return {
      next: (most) => [...open.values()].slice(0, most),
      // What is settled does not change any more.
      find: (order) => open.get(order) ?? this.#settled.get(order),
    };
  }

  /** Nothing of it is open any more. False: more was promised meanwhile, or it is settled. */
  settle(lines: OrderLines): boolean {
    if (this.#open.get(lines.order) !== lines) return false;
    this.#open.delete(lines.order);
    this.#settled.set(lines.order, lines);
    const [oldest] = this.#settled.keys();
    if (this.#settled.size > SETTLED_MAX && oldest !== undefined) this.#settled.delete(oldest);
    return true;
  }

  /** It is judged again after all others. */
  postpone({ order }: OrderLines): void {
    const lines = this.#open.get(order);
    if (lines === undefined) return;
    this.#open.delete(order);
    this.#open.set(order, lines);
  }
}
