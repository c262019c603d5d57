import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { ManualClock, settle } from "../../test/support/manual-clock.ts";
import { Bell } from "./bell.ts";
import { systemClock } from "./clock.ts";
import { runLoop } from "./loop.ts";

const never = new AbortController().signal;

function watch(wait: Promise<void>): { isOver: boolean } {
  const state = { isOver: false };
  void wait.then(() => {
    state.isOver = true;
  });
  return state;
}

describe("Bell", () => {
  it("ends a wait when rung", async () => {
    const [bell, clock] = [new Bell(), new ManualClock()];
    const wait = watch(bell.waitAtMost(1_000, clock, never));
    await settle();
    expect(wait.isOver).toBe(false);
    bell.ring();
    await settle();
    expect(wait.isOver).toBe(true);
    expect(clock.pending).toBe(0);
  });

  it("ends a wait when the time is up", async () => {
    const [bell, clock] = [new Bell(), new ManualClock()];
    const wait = watch(bell.waitAtMost(1_000, clock, never));
    clock.advance(999);
    await settle();
    expect(wait.isOver).toBe(false);
    clock.advance(1);
    await settle();
    expect(wait.isOver).toBe(true);
  });

  it("ends a wait when the signal aborts, and leaves no timer", async () => {
    const [bell, clock, abort] = [new Bell(), new ManualClock(), new AbortController()];
    const wait = watch(bell.waitAtMost(1_000, clock, abort.signal));
    abort.abort();
    await settle();
    expect(wait.isOver).toBe(true);
    expect(clock.pending).toBe(0);
  });

  it("does not wait at all when it was rung before", async () => {
    const bell = new Bell();
    bell.ring();
    await bell.waitAtMost(1_000, new ManualClock(), never);
    expect(bell.isRung).toBe(true);
  });

  it("counts many rings as one", async () => {
    const [bell, clock] = [new Bell(), new ManualClock()];
    for (let time = 0; time < 5; time += 1) bell.ring();
    bell.clear();
    const wait = watch(bell.waitAtMost(1_000, clock, never));
    await settle();
    expect(wait.isOver).toBe(false);
    bell.ring();
    await settle();
    expect(wait.isOver).toBe(true);
  });

  it("never loses a ring: work put down before it is found without waiting", async () => {
    // Each number is how many pieces are put down between two moments of the loop.
    await fc.assert(
      fc.asyncProperty(fc.array(fc.nat(3), { maxLength: 40 }), async (puts) => {
        const [bell, clock, abort] = [new Bell(), new ManualClock(), new AbortController()];
        let waiting = 0;
        let taken = 0;
        const turn = async (): Promise<{ restMs: number }> => {
          const found = waiting; // Looks once, then is busy for a while.
          await Promise.resolve();
          waiting -= found;
          taken += found;
          return { restMs: 3_600_000 };
        };
        const loop = runLoop(turn, { clock, bell, onFailure: () => 0 }, abort.signal);
        for (const [index, count] of puts.entries()) {
          for (let piece = 0; piece < count; piece += 1) {
            waiting += 1;
            bell.ring();
          }
          for (let tick = 0; tick < index % 4; tick += 1) await Promise.resolve();
        }
        await settle();
        expect(taken).toBe(puts.reduce((sum, count) => sum + count, 0));
        expect(waiting).toBe(0);
        abort.abort();
        await loop;
      }),
      { numRuns: 200 },
    );
  });

  it("wakes a loop of the real clock far earlier than its rest", async () => {
    const [bell, abort] = [new Bell(), new AbortController()];
    let turns = 0;
    const turn = async (): Promise<{ restMs: number }> => {
      turns += 1;
      if (turns === 1) setImmediate(() => bell.ring());
      else abort.abort();
      return { restMs: 60_000 };
    };
    await runLoop(turn, { clock: systemClock, bell, onFailure: () => 0 }, abort.signal);
    expect(turns).toBe(2);
  });
});
