import { describe, expect, it } from "vitest";
import type { Worker } from "../../api/types.ts";
import type { Moment } from "../../live/live-state.ts";
import { beatsOf, lifelineOf, timingOf } from "./beats.ts";

const moment = (serverAt: number, beat?: number): Moment => ({
  at: serverAt,
  serverAt,
  latest: 0,
  depth: 0,
  oldestSeconds: 0,
  lag: 0,
  checkpoints: {},
  beats: beat === undefined ? {} : { w: beat },
});
const WORKER: Worker = {
  id: "w",
  status: "active",
  heartbeatAgeSeconds: 1,
  isLeader: false,
  assigned: [],
  load: {},
};

/** Looks every two seconds up to now, but while nobody looked. */
const watched = (
  beats: readonly number[],
  now: number,
  away: readonly [number, number] = [0, 0],
): Moment[] =>
  Array.from({ length: Math.floor(now / 2) }, (_, index) => (now % 2) + 2 * (index + 1))
    .filter((at) => at <= away[0] || at >= away[1])
    .map((at) =>
      moment(
        at,
        beats.findLast((beat) => beat <= at),
      ),
    );
const marksAt = (beats: readonly number[], now: number, worker: Partial<Worker> = {}) =>
  lifelineOf({ ...WORKER, ...worker }, watched(beats, now)).marks;

it("counts each heartbeat once", () => {
  const moments = [moment(2, 1), moment(4, 1.02), moment(6, 4), moment(8, 7.1), moment(10)];
  expect(beatsOf(moments, "w")).toEqual([1, 4, 7.1]);
  expect(beatsOf(moments, "other")).toEqual([]);
});

it("knows how long a worker may be silent, as it says itself", () => {
  expect(timingOf({ load: { timeoutSeconds: 4 } })).toEqual({
    heartbeatSeconds: 3,
    timeoutSeconds: 4,
    leaseSeconds: 30,
  });
});

describe("marks", () => {
  it("are none while it is heard", () => {
    expect(marksAt([1, 4, 7], 9)).toEqual([]);
  });

  it("tell that it was late, and heard again", () => {
    expect(marksAt([1, 4, 12], 13)).toEqual([
      { at: 10, kind: "late", seconds: 8 },
      { at: 12, kind: "back", seconds: 8 },
    ]);
  });

  it("tell when it was silent for longer than others wait", () => {
    expect(marksAt([1, 4, 30], 31)).toEqual([
      { at: 14, kind: "lost", seconds: 26 },
      { at: 30, kind: "back", seconds: 26 },
    ]);
    expect(marksAt([1, 4], 20)).toEqual([{ at: 14, kind: "lost", seconds: 16 }]);
  });

  it("are none for the time in which nobody looked", () => {
    const beats = Array.from({ length: 100 }, (_, index) => 3 * index + 1);
    const away = (from: number, to: number) =>
      lifelineOf(WORKER, watched(beats, 290, [from, to])).marks;
    expect(away(30, 260)).toEqual([]); // A laptop slept, or the feed was away.
    expect(away(30, 300)).toEqual([]); // Nothing was told since.
    expect(away(0, 280)).toEqual([]);
  });

  it("tell of a silence as far as it was seen, before and behind a time without looks", () => {
    const seen = watched([1, 4, 90], 94, [20, 80]);
    expect(lifelineOf(WORKER, seen).marks).toEqual([
      { at: 14, kind: "lost", seconds: 86 },
      { at: 90, kind: "back", seconds: 86 },
    ]);
    const unseen = watched([1, 4, 90], 94, [12, 92]);
    expect(lifelineOf(WORKER, unseen).marks).toEqual([
      { at: 10, kind: "late", seconds: 8 },
      { at: 90, kind: "back", seconds: 8 },
    ]);
  });

  it("tell when it came, and how it ended, without calling that a silence", () => {
    const [startedAt, endedAt] = [new Date(1_000).toISOString(), new Date(60_000).toISOString()];
    expect(marksAt([1, 4], 90, { status: "dead", startedAt, endedAt })).toEqual([
      { at: 1, kind: "joined" },
      { at: 60, kind: "dead" },
    ]);
  });
});
