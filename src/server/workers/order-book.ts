import type { QueueSlots, Slots } from "../../tasks/slots.ts";

/** By their names, or whatever queue there is. */
export type OrderedQueues = readonly string[] | "all";

/** Where what is ordered of all queues is counted. No queue has this name. */
const ALL = "";

/** A request for tasks that stands until it is served, once, or withdrawn. */
export class Order<Task = unknown> {
  readonly tenant: string;
  readonly queues: OrderedQueues;
  /** How many tasks it asked for; more, when it was enlarged. */
  count: number;
  /** How long their leases are to last at least; 0 for as long as any. */
  readonly leaseSeconds: number;
  /** How many more tasks it takes. */
  left: number;
  /** Its place among those that wait; the lower came first. */
  place = 0;
  /** Those it will be served with. */
  readonly tasks: Task[] = [];

  constructor(tenant: string, queues: OrderedQueues, count: number, leaseSeconds = 0) {
    this.tenant = tenant;
    this.queues = queues;
    this.count = count;
    this.leaseSeconds = leaseSeconds;
    this.left = count;
  }
}

/** Orders that take tasks of one queue, in the order in which they came. */
interface Line<Task> {
  readonly orders: Set<Order<Task>>;
  /** How many tasks they take. */
  credit: number;
}

const firstOf = <Task>(line: Line<Task> | undefined): Order<Task> | undefined =>
  line?.orders.values().next().value;

/** The orders of one tenant. */
interface Account<Task> {
  readonly orders: Set<Order<Task>>;
  /** By queue: those that name it, as long as they take more. */
  readonly lines: Map<string, Line<Task>>;
  /** How many all orders take; less than the sum, because an order names several queues. */
  total: number;
}

/**
 * What remote workers have asked for. Their open orders are the slots of a server: a task may start
 * when an order of its tenant names its queue. An order that is served is closed, however many
 * tasks it got: whoever wants more says so again.
 */
export class OrderBook<Task = unknown> implements Slots {
  readonly #accounts = new Map<string, Account<Task>>();
  /** By queue: how many tasks of it all tenants together take. */
  readonly #byQueue = new Map<string, number>();
  #open = 0;
  #taken = 0;
  #places = 0;

  /** Taken: tasks that remote workers run now. */
  get count(): number {
    return this.#taken + this.#open;
  }

  of(queue: string): QueueSlots {
    return {
      free: (tenant) =>
        tenant === undefined
          ? (this.#byQueue.get(queue) ?? 0) + (this.#byQueue.get(ALL) ?? 0)
          : this.credit(queue, tenant),
      take: () => {
        this.#taken += 1;
      },
      release: () => {
        this.#taken -= 1;
      },
      isOpen: (tenant) => this.credit(queue, tenant) > 0,
    };
  }

  /** How many tasks of the queue the tenant's orders take. */
  credit(queue: string, tenant: string): number {
    const lines = this.#accounts.get(tenant)?.lines;
    return (lines?.get(queue)?.credit ?? 0) + (lines?.get(ALL)?.credit ?? 0);
  }

  /** How many tasks the tenant's orders take, of whatever queue they name. */
  totalOf(tenant: string): number {
    return this.#accounts.get(tenant)?.total ?? 0;
  }

  /** Tenants with open orders. */
  get tenants(): Iterable<string> {
    return this.#accounts.keys();
  }

  open(order: Order<Task>): void {
    let account = this.#accounts.get(order.tenant);
    if (account === undefined) {
      account = { orders: new Set(), lines: new Map(), total: 0 };
      this.#accounts.set(order.tenant, account);
    }
    order.place = this.#nextPlace();
    account.orders.add(order);
    this.#change(account, order, order.left);
  }

  /** It takes so many more: at its place, unless it had all that it asked for. */
  enlarge(order: Order<Task>, by: number): void {
    order.count += by;
    const account = this.#accounts.get(order.tenant);
    if (account?.orders.has(order) !== true) return; // It is about to be served.
    if (order.left === 0) order.place = this.#nextPlace();
    order.left += by;
    this.#change(account, order, by);
  }

  /** The order that has waited longest for a task of the queue, with one place less. */
  fill(queue: string, tenant: string, task: Task): Order<Task> | undefined {
    const account = this.#accounts.get(tenant);
    if (account === undefined) return undefined;
    const named = firstOf(account.lines.get(queue));
    const any = firstOf(account.lines.get(ALL));
    const order = (any?.place ?? Infinity) < (named?.place ?? Infinity) ? any : named;
    if (order === undefined) return undefined;
    order.left -= 1;
    order.tasks.push(task);
    this.#change(account, order, -1);
    return order;
  }

  /** It is served, or nobody waits for it any more. */
  close(order: Order<Task>): void {
    const account = this.#accounts.get(order.tenant);
    if (account?.orders.delete(order) !== true) return;
    const { left } = order;
    order.left = 0;
    this.#change(account, order, -left);
    if (account.orders.size === 0) this.#accounts.delete(order.tenant);
  }

  #nextPlace(): number {
    this.#places += 1;
    return this.#places;
  }

  #change(account: Account<Task>, order: Order<Task>, by: number): void {
    if (by === 0) return;
    account.total += by;
    this.#open += by;
    for (const queue of order.queues === "all" ? [ALL] : order.queues) {
      const count = (this.#byQueue.get(queue) ?? 0) + by;
      if (count === 0) this.#byQueue.delete(queue);
      else this.#byQueue.set(queue, count);
      let line = account.lines.get(queue);
      if (line === undefined) account.lines.set(queue, (line = { orders: new Set(), credit: 0 }));
      line.credit += by;
      if (order.left > 0) line.orders.add(order);
      else line.orders.delete(order);
      if (line.orders.size === 0) account.lines.delete(queue);
    }
  }
}
