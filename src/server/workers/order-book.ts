import type { QueueSlots, Slots } from "../../tasks/slots.ts";

/** By their names, or whatever queue there is. */
export type OrderedQueues = readonly string[] | "all";

/** Where what is ordered of all queues is counted. No queue has this name. */
const ALL = "";

/** A request for tasks that stands until it is served, once, or withdrawn. */
export class Order<Task = unknown> {
  readonly tenant: string;
  readonly queues: OrderedQueues;
  readonly count: number;
  /** How many more tasks it takes. */
  left: number;
  /** Those it will be served with. */
  readonly tasks: Task[] = [];

  constructor(tenant: string, queues: OrderedQueues, count: number) {
    this.tenant = tenant;
    this.queues = queues;
    this.count = count;
    this.left = count;
  }

  takes(queue: string): boolean {
    return this.left > 0 && (this.queues === "all" || this.queues.includes(queue));
  }
}

/** The orders of one tenant. */
interface Account<Task> {
  /** In the order in which they came. */
  readonly orders: Set<Order<Task>>;
  /** By queue: how many tasks the orders that name it take. */
  readonly credit: Map<string, number>;
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

  /** Taken: tasks that remote workers run now. */
  get count(): number {
    return this.#taken + this.#open;
  }

  of(queue: string): QueueSlots {
    return {
      free: (tenant) =>
        tenant === undefined ? sumOf(this.#byQueue, queue) : this.credit(queue, tenant),
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
    const account = this.#accounts.get(tenant);
    return account === undefined ? 0 : sumOf(account.credit, queue);
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
      account = { orders: new Set(), credit: new Map(), total: 0 };
      this.#accounts.set(order.tenant, account);
    }
    account.orders.add(order);
    this.#change(account, order, order.left);
  }

  /** The order that has waited longest for a task of the queue, with one place less. */
  fill(queue: string, tenant: string, task: Task): Order<Task> | undefined {
    const account = this.#accounts.get(tenant);
    if (account === undefined) return undefined;
    for (const order of account.orders) {
      if (!order.takes(queue)) continue;
      order.left -= 1;
      order.tasks.push(task);
      this.#change(account, order, -1);
      return order;
    }
    return undefined;
  }

  /** It is served, or nobody waits for it any more. */
  close(order: Order<Task>): void {
    const account = this.#accounts.get(order.tenant);
    if (account?.orders.delete(order) !== true) return;
    this.#change(account, order, -order.left);
    order.left = 0;
    if (account.orders.size === 0) this.#accounts.delete(order.tenant);
  }

  #change(account: Account<Task>, { queues }: Order<Task>, by: number): void {
    account.total += by;
    this.#open += by;
    for (const queue of queues === "all" ? [ALL] : queues) {
      add(account.credit, queue, by);
      add(this.#byQueue, queue, by);
    }
  }
}

function add(counts: Map<string, number>, key: string, by: number): void {
  const count = (counts.get(key) ?? 0) + by;
  if (count === 0) counts.delete(key);
  else counts.set(key, count);
}

function sumOf(counts: ReadonlyMap<string, number>, queue: string): number {
  return (counts.get(queue) ?? 0) + (counts.get(ALL) ?? 0);
}
