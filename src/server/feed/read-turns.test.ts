import { expect, it } from "vitest";
import { ReadTurns } from "./read-turns.ts";

it("reads one at a time, and lets tenants take turns", async () => {
  const turns = new ReadTurns();
  const order: string[] = [];
  let reading = 0;
  const read = async (tenant: string, name: string): Promise<string> =>
    await turns.take(tenant, async () => {
      reading += 1;
      expect(reading).toBe(1);
      await Promise.resolve();
      reading -= 1;
      order.push(name);
      return name;
    });
  const busy = ["a1", "a2", "a3", "a4"].map((name) => read("a", name));
  const others = [read("b", "b1"), read("b", "b2"), read("c", "c1")];
  expect(await Promise.all([...busy, ...others])).toHaveLength(7);
  expect(order).toEqual(["a1", "a2", "b1", "c1", "a3", "b2", "a4"]);
});

it("goes on behind a read that failed", async () => {
  const turns = new ReadTurns();
  const failing = turns.take("a", () => Promise.reject(new Error("away")));
  const next = turns.take("a", () => Promise.resolve(1));
  await expect(failing).rejects.toThrow("away");
  expect(await next).toBe(1);
  expect(await turns.take("b", () => Promise.resolve(2))).toBe(2);
});
