import { expect, it } from "vitest";
import { ManualClock } from "../../test/support/manual-clock.ts";
import { PackUse } from "./pack-use.ts";

it("claims a queue by rows for a while when most of its packs are opened", () => {
  const clock = new ManualClock();
  const use = new PackUse(clock);
  for (let n = 0; n < 9; n += 1) use.opened("slow");
  expect(use.isByRow("slow")).toBe(false);
  for (let n = 0; n < 7; n += 1) use.completed("slow");
  expect(use.isByRow("slow")).toBe(true);
  expect(use.isByRow("other")).toBe(false);
  clock.advance(10_001);
  expect(use.isByRow("slow")).toBe(false);
});

it("goes on with packs when one of them fails now and then", () => {
  const use = new PackUse(new ManualClock());
  for (let n = 0; n < 1_000; n += 1) {
    if (n % 3 === 0) use.opened("orders");
    else use.completed("orders");
  }
  expect(use.isByRow("orders")).toBe(false);
});

it("never takes packs whole again when handlers use leases", () => {
  const clock = new ManualClock();
  const use = new PackUse(clock);
  use.neverWhole("orders");
  for (let n = 0; n < 100; n += 1) use.completed("orders");
  clock.advance(1_000_000);
  expect(use.isByRow("orders")).toBe(true);
});
