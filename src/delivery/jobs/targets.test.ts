import fc from "fast-check";
import { expect, it } from "vitest";
import { type Admission, Targets } from "./targets.ts";

const RULES = {
  callsMax: 2,
  targetsMax: 3,
  failuresMax: 2,
  openMs: 10_000,
  openMsMax: 60_000,
};

function scene(more: Partial<typeof RULES> = {}) {
  const clock = { nowMs: 0 };
  const rules = { ...RULES, ...more };
  const targets = new Targets({ rules, now: () => clock.nowMs, random: () => 0.5 });
  return { clock, targets };
}

const CALL = { kind: "call", isProbe: false } as const;
const END = { isProbe: false };
const msOf = (admission: Admission): number => (admission.kind === "later" ? admission.ms : -1);

it("has so many places per target, hands them over, and forgets targets nobody calls", async () => {
  const { targets } = scene();
  expect(targets.enter("a")).toEqual(CALL);
  expect(targets.enter("a")).toEqual(CALL);
  expect(targets.enter("b")).toEqual(CALL);
  expect(targets.enter("a")).toEqual({ kind: "wait" });
  const waiter = targets.turn("a");
  targets.left("a", END, "alive", 10);
  expect(await waiter.admitted).toEqual(CALL);
  expect(targets.enter("a")).toEqual({ kind: "wait" });
  for (const key of ["a", "a", "b"]) targets.left(key, END, "alive", 10);
  expect(targets.size).toBe(0);
});

it("sends away what would hold its slot for long: of slow targets, and of those that stand", () => {
  const { targets, clock } = scene();
  targets.enter("slow");
  for (let n = 0; n < 20; n += 1) {
    targets.enter("slow");
    targets.left("slow", END, "alive", 4_000);
  }
  targets.enter("slow");
  const delays = [1, 2, 3, 4].map(() => msOf(targets.enter("slow")));
  // One after another, as two places take them.
  expect(delays[0]).toBeGreaterThanOrEqual(1_000);
  expect((delays[3] ?? 0) - (delays[2] ?? 0)).toBeGreaterThan(1_500);
  targets.enter("halted");
  targets.enter("halted");
  expect(targets.enter("halted")).toEqual({ kind: "wait" });
  clock.nowMs += 300;
  expect(targets.enter("halted")).toMatchObject({ kind: "later", why: "full" });
});

it("tells those who wait at once when their target breaks", async () => {
  const { targets } = scene();
  targets.enter("a");
  targets.enter("a");
  const waiters = [targets.turn("a"), targets.turn("a")];
  expect(targets.left("a", END, "dead", 10)).toBe(false);
  expect(await waiters[0]?.admitted).toEqual(CALL);
  expect(targets.left("a", END, "dead", 10)).toBe(true);
  expect(await waiters[1]?.admitted).toMatchObject({ kind: "later", why: "broken" });
  expect(msOf(targets.enter("a"))).toBeGreaterThanOrEqual(10_000);
  expect(targets.broken).toBe(1);
});

it("lets one call through when the pause is over, and the others when that was answered", () => {
  const { targets, clock } = scene();
  for (const _ of [1, 2]) {
    targets.enter("a");
    targets.left("a", END, "dead", 10);
  }
  clock.nowMs = 10_000;
  expect(targets.enter("a")).toEqual({ kind: "call", isProbe: true });
  expect(targets.enter("a")).toMatchObject({ kind: "later", why: "broken" });
  targets.left("a", { isProbe: true }, "alive", 10);
  expect(targets.enter("a")).toEqual(CALL);
});

it("sends nobody away for ever, however deep the line", () => {
  const { targets } = scene();
  for (let n = 0; n < 10; n += 1) {
    targets.enter("a");
    targets.left("a", END, n % 2 === 0 ? "dead" : { pauseMs: 5_000 }, 20_000);
  }
  const delays = Array.from({ length: 2_000 }, () => msOf(targets.enter("a")));
  expect(Math.max(...delays)).toBeLessThanOrEqual(15 * 60_000);
  expect(Math.min(...delays)).toBeGreaterThanOrEqual(1_000);
});

it("keeps its limits whatever happens, and remembers no more targets than allowed", () => {
  const step = fc.record({
    key: fc.constantFrom("a", "b", "c", "d", "e"),
    isEnter: fc.boolean(),
    news: fc.constantFrom("alive" as const, "dead" as const, "unknown" as const),
    afterMs: fc.nat(4_000),
  });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 120 }), (steps) => {
      const { targets, clock } = scene({ targetsMax: 5 });
      const active = new Map<string, { isProbe: boolean }[]>();
      for (const { key, isEnter, news, afterMs } of steps) {
        clock.nowMs += afterMs;
        const held = active.get(key) ?? [];
        active.set(key, held);
        if (!isEnter) {
          const call = held.shift();
          if (call !== undefined) targets.left(key, call, news, afterMs);
          continue;
        }
        const admission = targets.enter(key);
        if (admission.kind === "call") held.push(admission);
        expect(held.length).toBeLessThanOrEqual(RULES.callsMax);
        expect(held.filter(({ isProbe }) => isProbe).length).toBeLessThanOrEqual(1);
        expect(targets.size).toBeLessThanOrEqual(5);
      }
    }),
  );
});
