import { describe, expect, it } from "vitest";
import { ManualClock, settle } from "../../test/support/manual-clock.ts";
import { Bell } from "./bell.ts";
import { runLoop, type TurnResult } from "./loop.ts";

function looping(turn: (time: number) => Promise<TurnResult>, rests: number[] = []) {
  const [bell, clock, abort] = [new Bell(), new ManualClock(), new AbortController()];
  const state = { turns: 0, failures: [] as number[], isOver: false };
  const onFailure = (_: unknown, failures: number): number => {
    state.failures.push(failures);
    return rests[failures - 1] ?? 100;
  };
  const ended = runLoop(
    () => turn(++state.turns),
    { bell, clock, onFailure },
    abort.signal,
  ).finally(() => {
    state.isOver = true;
  });
  return { bell, clock, abort, state, ended };
}

describe("runLoop", () => {
  it("repeats at once while a turn asks for it", async () => {
    const { state, abort, ended } = looping(async (time) => (time < 5 ? "again" : { restMs: 10 }));
    await settle();
    await settle();
    expect(state.turns).toBe(5);
    abort.abort();
    await ended;
  });

  it("yields to timers and sockets between turns that never rest", async () => {
    const { abort, ended } = looping(async () => "again");
    await new Promise<void>((resolve) => setImmediate(resolve));
    abort.abort(); // Not reached if the loop kept the process to itself.
    await ended;
  });

  it("rests as long as the turn says", async () => {
    const { state, clock, abort, ended } = looping(async () => ({ restMs: 500 }));
    await settle();
    expect([state.turns, clock.nextMs]).toEqual([1, 500]);
    clock.advance(500);
    await settle();
    expect(state.turns).toBe(2);
    abort.abort();
    await ended;
  });

  it("wakes early for a ring, but not when the turn asked to be left alone", async () => {
    const { state, bell, clock, abort, ended } = looping(async (time) => ({
      restMs: 500,
      isDeaf: time === 2,
    }));
    await settle();
    bell.ring();
    await settle();
    expect(state.turns).toBe(2);
    bell.ring();
    await settle();
    expect(state.turns).toBe(2);
    clock.advance(500);
    await settle();
    expect(state.turns).toBe(3);
    abort.abort();
    await ended;
  });

  it("rests after a failure however often it is rung, and counts failures in a row", async () => {
    const { state, bell, clock, abort, ended } = looping(
      async (time) => {
        if (time <= 2 || time === 4) throw new Error("no");
        return { restMs: 10 };
      },
      [100, 300],
    );
    await settle();
    bell.ring();
    await settle();
    expect([state.turns, clock.nextMs]).toEqual([1, 100]);
    clock.advance(100);
    await settle();
    expect([state.turns, clock.nextMs]).toEqual([2, 300]);
    clock.advance(300);
    await settle();
    clock.advance(10);
    await settle();
    expect(state.failures).toEqual([1, 2, 1]);
    abort.abort();
    await ended;
  });

  it("ends with the error that onFailure throws", async () => {
    const fatal = new Error("cannot go on");
    const options = {
      bell: new Bell(),
      clock: new ManualClock(),
      onFailure: (error: unknown) => {
        throw error;
      },
    };
    const turn = async (): Promise<TurnResult> => {
      throw fatal;
    };
    await expect(runLoop(turn, options, new AbortController().signal)).rejects.toBe(fatal);
  });

  it("takes an error that the shutdown caused for no failure", async () => {
    const abort = new AbortController();
    const options = { bell: new Bell(), clock: new ManualClock(), onFailure: () => 0 };
    let failures = 0;
    const turn = async (signal: AbortSignal): Promise<TurnResult> => {
      abort.abort();
      signal.throwIfAborted();
      return "again";
    };
    const count = (): number => {
      failures += 1;
      return 0;
    };
    await runLoop(turn, { ...options, onFailure: count }, abort.signal);
    expect(failures).toBe(0);
  });

  it("does not begin when its signal has aborted before", async () => {
    const options = { bell: new Bell(), clock: new ManualClock(), onFailure: () => 0 };
    let turns = 0;
    await runLoop(
      async () => {
        turns += 1;
        return "again";
      },
      options,
      AbortSignal.abort(),
    );
    expect(turns).toBe(0);
  });

  it("ends during a rest, and leaves no timer", async () => {
    const { clock, abort, ended, state } = looping(async () => ({ restMs: 60_000, isDeaf: true }));
    await settle();
    abort.abort();
    await ended;
    expect([state.isOver, clock.pending]).toEqual([true, 0]);
  });
});
