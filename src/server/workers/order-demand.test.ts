import { describe, expect, it } from "vitest";
import { ManualClock } from "../../../test/support/manual-clock.ts";
import { Order, OrderBook } from "./order-book.ts";
import { OrderDemand } from "./order-demand.ts";

/** Demand of orders, over what is ready: a number by queue and tenant. */
function demandOf(ready: Readonly<Record<string, number>> = {}) {
  const orders = new OrderBook();
  const clock = new ManualClock();
  const readyOf = (queue: string) => ({
    readyOf: (tenant: string): number => ready[`${queue} of ${tenant}`] ?? 0,
  });
  const executor = { unanswered: 0, lines: { names: ["mails", "bills"], readyOf } };
  return { demand: new OrderDemand(executor as never, orders, clock), orders, clock };
}

const keys = (tenant: string, queues = ["mails"], behind = 0) => {
  return { space: { tenant, queues }, isHere: false, behind };
};

describe("what is wanted of the keys of a tenant", () => {
  it("is nothing without an order of that tenant for a queue of the space", () => {
    const { demand, orders } = demandOf();
    expect(demand.wantKeyed(keys("acme"))).toBe(0);
    orders.open(new Order("globex", ["mails"], 10));
    orders.open(new Order("acme", ["bills"], 10));
    expect(demand.wantKeyed(keys("acme"))).toBe(0);
    expect(demand.wantKeyed(keys("globex"))).toBe(20);
  });

  it("is twice what its orders take, because tasks wait for others of their key", () => {
    const { demand, orders } = demandOf({ "mails of acme": 3 });
    orders.open(new Order("acme", ["mails", "bills"], 10));
    expect(demand.wantKeyed(keys("acme"))).toBe(17);
    expect(demand.wantKeyed(keys("acme", ["mails", "bills"]))).toBe(17);
    expect(demand.wantKeyed(keys("acme", ["bills"], 10))).toBe(10);
  });

  it("is what orders lack, however many wait behind others", () => {
    const { demand, orders } = demandOf({ "mails of acme": 3 });
    orders.open(new Order("acme", "all", 10));
    expect(demand.wantKeyed(keys("acme", ["mails"], 1_000))).toBe(7);
  });

  it("follows the pace of that tenant, and of no other", () => {
    const { demand, orders, clock } = demandOf();
    for (const tenant of ["acme", "globex"]) orders.open(new Order(tenant, ["mails"], 1));
    for (let count = 0; count < 100; count += 1) demand.served("acme");
    clock.advance(100);
    demand.measure();
    expect([demand.wantKeyed(keys("acme")), demand.perKey("acme")]).toEqual([202, 50]);
    expect([demand.wantKeyed(keys("globex")), demand.perKey("globex")]).toEqual([2, 2]);
  });
});
