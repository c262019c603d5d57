import { expect, it } from "vitest";
import { HttpMetrics } from "./metrics.ts";
import { Waits } from "./waits.ts";

/** How many of so many calls of the tenant are let in. They wait until `end` is called. */
function crowd(waits: Waits) {
  const ends: (() => void)[] = [];
  const refusals: Promise<unknown>[] = [];
  return {
    come(tenant: string, count: number): number {
      const before = ends.length;
      for (let call = 0; call < count; call += 1) {
        const wait = waits.during(tenant, () => new Promise<void>((resolve) => ends.push(resolve)));
        refusals.push(wait.catch((error: unknown) => error));
      }
      return ends.length - before;
    },
    async end(): Promise<unknown[]> {
      for (const end of ends.splice(0)) end();
      const all = await Promise.all(refusals.splice(0));
      return all.filter((refusal) => refusal !== undefined);
    },
  };
}

it("leaves room for others, however many calls of one tenant wait", async () => {
  const metrics = new HttpMetrics();
  const calls = crowd(new Waits(100, metrics));
  expect(calls.come("acme", 200)).toBe(50);
  expect(calls.come("globex", 200)).toBe(25);
  for (let other = 0; other < 25; other += 1) expect(calls.come(`other-${other}`, 2)).toBe(1);
  expect(calls.come("late", 1)).toBe(0);
  expect(metrics.waits.value()).toBe(100);
  const refusals = await calls.end();
  expect(refusals).toHaveLength(150 + 175 + 25 + 1);
  expect(refusals).toContainEqual(expect.objectContaining({ code: "TM_LIMIT" }));
  expect(metrics.waits.value()).toBe(0);
  expect(calls.come("acme", 200)).toBe(50);
  await calls.end();
});

it("lets somebody wait when there is one place", async () => {
  const calls = crowd(new Waits(1, new HttpMetrics()));
  expect(calls.come("acme", 2)).toBe(1);
  await calls.end();
  expect(calls.come("globex", 1)).toBe(1);
  await calls.end();
});
