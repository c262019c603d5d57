import { describe, expect, it } from "vitest";
import { settle } from "../../../test/support/manual-clock.ts";
import { Budget } from "./budget.ts";

/** Takes room and notes who got it. */
function taker(budget: Budget) {
  const got: string[] = [];
  const take = (tenant: string, bytes: number, name = tenant) => {
    const place = budget.take(tenant, bytes);
    if (place.waiting === undefined) got.push(name);
    else void place.waiting.then(() => got.push(name));
    return place;
  };
  return { got, take };
}

describe("a budget", () => {
  it("lets in what fits, and the rest when there is room", async () => {
    const budget = new Budget(100);
    const { got, take } = taker(budget);
    const first = take("a", 40);
    take("a", 20, "second");
    expect(got).toEqual(["a"]);
    first.release();
    first.release();
    await settle();
    expect(got).toEqual(["a", "second"]);
    expect(budget.bytes).toBe(20);
  });

  it("keeps room for a tenant that has nothing, whatever others take", () => {
    const { got, take } = taker(new Budget(100));
    for (let n = 0; n < 20; n += 1) take("a", 10);
    for (let n = 0; n < 20; n += 1) take("b", 10);
    take("c", 20);
    expect(got.filter((one) => one === "a")).toHaveLength(5);
    expect(got.filter((one) => one === "b")).toHaveLength(2);
    expect(got.at(-1)).toBe("c");
  });

  it("gives room that comes free to tenants in turns", async () => {
    const budget = new Budget(100);
    const { got, take } = taker(budget);
    const places = [take("a", 50, "all"), take("b", 50, "all")];
    for (const n of [1, 2]) for (const tenant of ["a", "b"]) take(tenant, 30, `${tenant}${n}`);
    for (const place of places) place.release();
    await settle();
    expect(got.slice(2)).toEqual(["a1", "b1"]);
  });

  it("lets in alone what is larger than all of it, and forgets who went away", async () => {
    const budget = new Budget(100);
    const { got, take } = taker(budget);
    const large = take("a", 500, "large");
    const gone = take("b", 10, "gone");
    take("b", 10, "next");
    gone.release();
    large.release();
    await settle();
    expect(got).toEqual(["large", "next"]);
    expect(budget.bytes).toBe(10);
  });
});
