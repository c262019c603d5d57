import { describe, expect, it } from "vitest";
import { Order, OrderBook } from "./order-book.ts";

const order = (queues: readonly string[] | "all", count = 1, tenant = "t") =>
  new Order<number>(tenant, queues, count);

function bookOf(...orders: Order<number>[]): OrderBook<number> {
  const book = new OrderBook<number>();
  for (const one of orders) book.open(one);
  return book;
}

describe("an order book", () => {
  it("fills the order that waited longest, of those that name the queue", () => {
    const [a, any, b] = [order(["a"]), order("all"), order(["a", "b"], 2)];
    const book = bookOf(a, any, b);
    expect(book.fill("b", "t", 1)).toBe(any);
    expect(book.fill("a", "t", 2)).toBe(a);
    expect(book.fill("a", "t", 3)).toBe(b);
    expect(book.fill("b", "t", 4)).toBe(b);
    expect(book.fill("b", "t", 5)).toBeUndefined();
    expect(book.fill("a", "other", 6)).toBeUndefined();
    expect(b.tasks).toEqual([3, 4]);
  });

  it("counts what the orders of a tenant take", () => {
    const [ab, any] = [order(["a", "b"], 3), order("all", 2)];
    const book = bookOf(ab, any, order(["a"], 4, "other"));
    expect([book.credit("a", "t"), book.credit("c", "t"), book.totalOf("t")]).toEqual([5, 2, 5]);
    expect(book.of("a").free()).toBe(9);
    book.fill("a", "t", 1);
    expect([book.credit("b", "t"), book.totalOf("t"), book.count]).toEqual([4, 4, 8]);
    book.close(ab);
    book.close(ab);
    expect([book.credit("a", "t"), book.totalOf("t")]).toEqual([2, 2]);
    book.close(any);
    expect([...book.tenants]).toEqual(["other"]);
    expect(book.of("a").isOpen?.("t")).toBe(false);
  });

  it("lets an order grow at its place, or at the end when it had got everything", () => {
    const [first, second] = [order(["a"]), order(["a"], 2)];
    const book = bookOf(first, second);
    book.enlarge(first, 1);
    expect([book.fill("a", "t", 1), book.fill("a", "t", 2)]).toEqual([first, first]);
    book.enlarge(first, 1);
    expect(book.fill("a", "t", 3)).toBe(second);
    book.close(second);
    expect(book.fill("a", "t", 4)).toBe(first);
    expect(first.count).toBe(3);
    book.close(first);
    book.enlarge(first, 2);
    expect([first.count, first.left, book.count]).toEqual([5, 0, 0]);
  });
});
