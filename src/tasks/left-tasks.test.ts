import { beforeEach, describe, expect, it } from "vitest";
import { ManualClock } from "../../test/support/manual-clock.ts";
import { Timers } from "../base/timers.ts";
import { LeftTasks } from "./left-tasks.ts";
import type { LeaseToken } from "./task.ts";

describe("a task that is left to others", () => {
  let clock: ManualClock;
  let left: LeftTasks;
  /** Ids of tasks that stand; undefined while the database does not answer. */
  let standing: Set<string> | undefined;
  let asked: string[][];
  let uncounted: string[];
  let isLimited: boolean;

  beforeEach(() => {
    clock = new ManualClock();
    standing = new Set(["1", "2"]);
    asked = [];
    uncounted = [];
    isLimited = true;
    left = new LeftTasks({
      clock,
      timers: new Timers(clock),
      isLimited: () => isLimited,
      findStanding: async (tokens) => {
        asked.push(tokens.map(({ taskId }) => taskId));
        if (standing === undefined) throw new Error("nobody answers");
        const places = [...tokens.keys()];
        return new Set(places.filter((place) => standing?.has(tokens[place]?.taskId ?? "")));
      },
    });
  });

  const token = (taskId: string): LeaseToken => ({ taskId, generation: 1, claimId: "claim" });
  const leave = (taskId: string, ms = 5_000): (() => void) =>
    left.leave({ queue: "orders", token: token(taskId) }, ms, () => uncounted.push(taskId));
  const pass = async (ms: number): Promise<void> => {
    clock.advance(ms);
    for (let turn = 0; turn < 10; turn += 1) await Promise.resolve();
  };

  it("counts until its claim is over, however long that takes", async () => {
    leave("1");
    await pass(4_999);
    expect(asked).toEqual([]);
    for (let seconds = 0; seconds < 60; seconds += 1) await pass(1_000);
    expect(asked.length).toBeGreaterThan(50);
    expect(uncounted).toEqual([]);
    standing = new Set();
    await pass(1_000);
    expect(uncounted).toEqual(["1"]);
    await pass(10_000);
    expect(uncounted).toEqual(["1"]);
  });

  it("counts while nobody can say whether it is over", async () => {
    standing = undefined;
    leave("1");
    await pass(5_000);
    await pass(1_000);
    expect(uncounted).toEqual([]);
    standing = new Set();
    await pass(1_000);
    expect(uncounted).toEqual(["1"]);
  });

  it("is asked for with the others that are due, each judged for itself", async () => {
    leave("1");
    leave("3");
    leave("2");
    await pass(5_000);
    expect(asked.flat().sort()).toEqual(["1", "2", "3"]);
    expect(uncounted).toEqual(["3"]);
  });

  it("costs one statement a second, however many are left one after another", async () => {
    standing = new Set(Array.from({ length: 10 }, (_, n) => `${n}`));
    for (const taskId of standing) {
      leave(taskId);
      await pass(100);
    }
    await pass(4_000);
    for (let tenth = 0; tenth < 100; tenth += 1) await pass(100);
    expect(asked.length).toBeLessThanOrEqual(11);
    expect(asked.at(-1)?.sort()).toEqual([...standing]);
  });

  it("is asked for within a second when nobody knows how long it lasts", async () => {
    standing = new Set();
    leave("1", 0);
    await pass(1_000);
    expect(uncounted).toEqual(["1"]);
    expect(clock.pending).toBe(0);
  });

  it("comes round with all others when they are too many for one statement", async () => {
    standing = new Set(Array.from({ length: 1_001 }, (_, n) => `${n}`));
    for (const taskId of standing) leave(taskId, 0);
    await pass(1_000);
    await pass(1_000);
    expect(asked.map(({ length }) => length)).toEqual([1_000, 1_000]);
    expect(new Set(asked.flat())).toEqual(standing);
  });

  it("of a queue without a limit is asked for seldom, and counts in case one comes", async () => {
    isLimited = false;
    leave("1", 0);
    leave("3", 0);
    for (let seconds = 0; seconds < 29; seconds += 1) await pass(1_000);
    expect(asked).toEqual([]);
    await pass(1_000);
    expect(asked).toEqual([["1", "3"]]);
    expect(uncounted).toEqual(["3"]);
    await pass(1_000);
    expect(asked).toHaveLength(1);
    isLimited = true;
    standing = new Set();
    await pass(1_000);
    expect(uncounted).toEqual(["3", "1"]);
  });

  it("counts once less, and is not asked for, when its end is known", async () => {
    const over = leave("1");
    over();
    over();
    expect(uncounted).toEqual(["1"]);
    await pass(10_000);
    expect(asked).toEqual([]);
    expect(uncounted).toEqual(["1"]);
  });
});
