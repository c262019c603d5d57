import { describe, expect, it } from "vitest";
import { ManualClock } from "../../test/support/manual-clock.ts";
import { Prefetch } from "./prefetch.ts";

const NOTHING = { active: 0, ready: 0, unanswered: 0 };

/** One that ended 30,000 tasks in the last second. */
function fast(): Prefetch {
  const clock = new ManualClock();
  const prefetch = new Prefetch(clock, 20);
  clock.advance(1_000);
  prefetch.measure(30_000);
  return prefetch;
}

it("asks for as many as there are slots before anything is known", () => {
  const prefetch = new Prefetch(new ManualClock(), 20);
  expect(prefetch.want(NOTHING)).toBe(20);
  expect(prefetch.want({ ...NOTHING, active: 15 })).toBe(5);
});

it("asks for a thousand at most, when half of that is gone", () => {
  expect(fast().want(NOTHING)).toBe(1_020);
  expect(fast().want({ active: 20, ready: 500, unanswered: 0 })).toBe(500);
  expect(fast().want({ active: 20, ready: 501, unanswered: 0 })).toBe(0);
});

it("asks for nothing while the database is behind with what ended", () => {
  expect(fast().want({ ...NOTHING, unanswered: 4_000 })).toBe(1_020);
  expect(fast().want({ ...NOTHING, unanswered: 4_001 })).toBe(0);
});

describe("of keyed tasks", () => {
  const NOTHING_KEYED = { ...NOTHING, behind: 0 };

  it("asks for twice as many, in claims of a quarter of it", () => {
    expect(fast().wantKeyed(NOTHING_KEYED)).toBe(2_040);
    expect(fast().wantKeyed({ ...NOTHING_KEYED, unanswered: 500, behind: 1_530 })).toBe(510);
    expect(fast().wantKeyed({ ...NOTHING_KEYED, unanswered: 500, behind: 1_531 })).toBe(0);
  });

  it("fills idle slots, however many wait behind one of their key", () => {
    const slow = new Prefetch(new ManualClock(), 20);
    expect(slow.perKey).toBe(2);
    expect(slow.wantKeyed({ active: 12, ready: 3, unanswered: 1, behind: 1_000 })).toBe(4);
  });
});
