import { expect, it } from "vitest";
import { BoundedMap } from "./bounded-map.ts";

it("forgets the oldest for the newest, however many come", () => {
  const map = new BoundedMap<number, string>(3);
  for (let n = 0; n < 1_000; n += 1) map.set(n, `${n}`);
  expect(map.size).toBe(3);
  expect([996, 997, 998, 999].map((n) => map.get(n))).toEqual([undefined, "997", "998", "999"]);
});

it("forgets nobody for one that it knows", () => {
  const map = new BoundedMap<string, number>(2);
  map.set("a", 1).set("b", 2).set("b", 3);
  expect([...map]).toEqual([
    ["a", 1],
    ["b", 3],
  ]);
});
