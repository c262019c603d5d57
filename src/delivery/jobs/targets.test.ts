import fc from "fast-check";
import { expect, it } from "vitest";
import { type Admission, type Place, type Standing, Targets } from "./targets.ts";

const RULES = {
  callsMax: 2,
  targetsMax: 3,
  highCallsMin: 0,
  highWaitersMax: 1,
  failuresMax: 2,
  openMs: 10_000,
  openMsMax: 60_000,
};
const LOW: Standing = { rank: 2, isHigh: false };
const HIGH: Standing = { rank: 8, isHigh: true };

function scene(more: Partial<typeof RULES> = {}) {
  const clock = { nowMs: 0 };
  const rules = { ...RULES, ...more };
  const targets = new Targets({ rules, now: () => clock.nowMs, random: () => 0.5 });
  return { clock, targets };
}

const CALL = { kind: "call", isProbe: false, isHigh: false } as const;
const END = { isProbe: false, isHigh: false };
const msOf = (admission: Admission): number => (admission.kind === "later" ? admission.ms : -1);

it("has so many places per target, hands them over, and forgets targets nobody calls", async () => {
  const { targets } = scene();
  expect(targets.enter("a", LOW)).toEqual(CALL);
  expect(targets.enter("a", LOW)).toEqual(CALL);
  expect(targets.enter("b", LOW)).toEqual(CALL);
  expect(targets.enter("a", LOW)).toEqual({ kind: "wait" });
  const waiter = targets.turn("a", LOW);
  targets.left("a", END, "alive", 10);
  expect(await waiter.admitted).toEqual(CALL);
  expect(targets.enter("a", LOW)).toEqual({ kind: "wait" });
  for (const key of ["a", "a", "b"]) targets.left(key, END, "alive", 10);
  expect(targets.size).toBe(0);
});

it("sends away what would hold its slot for long: of slow targets, and of those that stand", () => {
  const { targets, clock } = scene();
  targets.enter("slow", LOW);
  for (let n = 0; n < 20; n += 1) {
    targets.enter("slow", LOW);
    targets.left("slow", END, "alive", 4_000);
  }
  targets.enter("slow", LOW);
  const delays = [1, 2, 3, 4].map(() => msOf(targets.enter("slow", LOW)));
  // One after another, as two places take them.
  expect(delays[0]).toBeGreaterThanOrEqual(1_000);
  expect((delays[3] ?? 0) - (delays[2] ?? 0)).toBeGreaterThan(1_500);
  targets.enter("halted", LOW);
  targets.enter("halted", LOW);
  expect(targets.enter("halted", LOW)).toEqual({ kind: "wait" });
  clock.nowMs += 300;
  expect(targets.enter("halted", LOW)).toMatchObject({ kind: "later", why: "full" });
});

it("tells those who wait at once when their target breaks", async () => {
  const { targets } = scene();
  targets.enter("a", LOW);
  targets.enter("a", LOW);
  const waiters = [targets.turn("a", LOW), targets.turn("a", LOW)];
  expect(targets.left("a", END, "dead", 10)).toBe(false);
  expect(await waiters[0]?.admitted).toEqual(CALL);
  expect(targets.left("a", END, "dead", 10)).toBe(true);
  expect(await waiters[1]?.admitted).toMatchObject({ kind: "later", why: "broken" });
  expect(msOf(targets.enter("a", LOW))).toBeGreaterThanOrEqual(10_000);
  expect(targets.broken).toBe(1);
});

it("counts a target as broken while it is left alone, and no longer", () => {
  const { targets, clock } = scene();
  for (const key of ["a", "b", "c"]) {
    for (const _ of [1, 2]) {
      targets.enter(key, LOW);
      targets.left(key, END, "dead", 10);
    }
  }
  expect(targets.broken).toBe(3);
  // One is forgotten for another.
  targets.enter("d", LOW);
  expect([targets.size, targets.broken]).toEqual([3, 2]);
  // Nobody has anything for the others, so nobody finds out whether they answer.
  clock.nowMs = 10_000;
  expect(targets.broken).toBe(0);
  // While one call finds out, the others are kept away.
  targets.enter("c", LOW);
  expect(targets.broken).toBe(1);
});

it("lets one call through when the pause is over, and the others when that was answered", () => {
  const { targets, clock } = scene();
  for (const _ of [1, 2]) {
    targets.enter("a", LOW);
    targets.left("a", END, "dead", 10);
  }
  clock.nowMs = 10_000;
  expect(targets.enter("a", LOW)).toEqual({ ...CALL, isProbe: true });
  expect(targets.enter("a", LOW)).toMatchObject({ kind: "later", why: "broken" });
  targets.left("a", { ...END, isProbe: true }, "alive", 10);
  expect(targets.enter("a", LOW)).toEqual(CALL);
});

it("gives the next place to who ranks highest, and to those who rank as high in turn", async () => {
  const { targets } = scene();
  for (const _ of [1, 2]) targets.enter("a", LOW);
  const order: string[] = [];
  const waits = (name: string, standing: Standing): void => {
    void targets.turn("a", standing).admitted.then(({ kind }) => order.push(`${name} ${kind}`));
  };
  waits("first", LOW);
  waits("second", LOW);
  waits("high", HIGH);
  waits("aged", { rank: 9, isHigh: false });
  for (let n = 0; n < 4; n += 1) targets.left("a", END, "alive", 10);
  await Promise.resolve();
  expect(order).toEqual(["aged call", "high call", "first call", "second call"]);
});

it("lets one of high priority wait where it sends others away, but not all of them", () => {
  const { targets } = scene();
  targets.enter("slow", LOW);
  for (let n = 0; n < 20; n += 1) {
    targets.enter("slow", LOW);
    targets.left("slow", END, "alive", 4_000);
  }
  targets.enter("slow", LOW);
  // Many were sent away before: they come back at the pace of the host, and high ones before them.
  const low = Array.from({ length: 500 }, () => msOf(targets.enter("slow", LOW)));
  expect(Math.max(...low)).toBeGreaterThan(500_000);
  expect(targets.enter("slow", HIGH)).toEqual({ kind: "wait" });
  const { giveUp } = targets.turn("slow", HIGH);
  // Slots of the reserve are left for those whose hosts have places.
  expect(msOf(targets.enter("slow", HIGH))).toBeLessThan(5_000);
  giveUp();
  expect(targets.enter("slow", HIGH)).toEqual({ kind: "wait" });
});

it("keeps places for high priority, and lets nobody else have them", async () => {
  const { targets } = scene({ callsMax: 3, highCallsMin: 1 });
  for (const _ of [1, 2]) expect(targets.enter("a", LOW)).toEqual(CALL);
  // However long it has waited.
  const aged = { rank: 20, isHigh: false };
  expect(targets.enter("a", aged)).toEqual({ kind: "wait" });
  const low = targets.turn("a", aged);
  const place = { isProbe: false, isHigh: true };
  expect(targets.enter("a", HIGH)).toEqual({ kind: "call", ...place });
  const high = targets.turn("a", HIGH);
  targets.left("a", place, "alive", 10);
  expect(await high.admitted).toEqual({ kind: "call", ...place });
  targets.left("a", END, "alive", 10);
  expect(await low.admitted).toEqual(CALL);
  // High ones may have all of them.
  for (const one of [END, END, place]) targets.left("a", one, "alive", 10);
  for (const _ of [1, 2, 3]) expect(targets.enter("a", HIGH).kind).toBe("call");
});

it("sends nobody away for ever, however deep the line", () => {
  const { targets } = scene();
  for (let n = 0; n < 10; n += 1) {
    targets.enter("a", LOW);
    targets.left("a", END, n % 2 === 0 ? "dead" : { pauseMs: 5_000 }, 20_000);
  }
  const delays = Array.from({ length: 2_000 }, () => msOf(targets.enter("a", LOW)));
  expect(Math.max(...delays)).toBeLessThanOrEqual(15 * 60_000);
  expect(Math.min(...delays)).toBeGreaterThanOrEqual(1_000);
});

it("keeps its limits whatever happens, and remembers no more targets than allowed", () => {
  const step = fc.record({
    key: fc.constantFrom("a", "b", "c", "d", "e"),
    isEnter: fc.boolean(),
    isHigh: fc.boolean(),
    news: fc.constantFrom("alive" as const, "dead" as const, "unknown" as const),
    afterMs: fc.nat(4_000),
  });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 120 }), (steps) => {
      const { targets, clock } = scene({ targetsMax: 5, callsMax: 3, highCallsMin: 1 });
      const active = new Map<string, Place[]>();
      for (const { key, isEnter, isHigh, news, afterMs } of steps) {
        clock.nowMs += afterMs;
        const held = active.get(key) ?? [];
        active.set(key, held);
        if (!isEnter) {
          const call = held.shift();
          if (call !== undefined) targets.left(key, call, news, afterMs);
          continue;
        }
        const admission = targets.enter(key, isHigh ? HIGH : LOW);
        if (admission.kind === "call") held.push(admission);
        expect(held.length).toBeLessThanOrEqual(3);
        expect(held.filter((place) => !place.isHigh).length).toBeLessThanOrEqual(2);
        expect(held.filter(({ isProbe }) => isProbe).length).toBeLessThanOrEqual(1);
        expect(targets.size).toBeLessThanOrEqual(5);
      }
    }),
  );
});
