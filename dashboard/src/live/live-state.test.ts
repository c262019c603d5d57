import { describe, expect, it } from "vitest";
import type { ClusterStatus } from "../api/types.ts";
import type { FeedSummary, LiveEvent } from "./events.ts";
import { consumerRate, fold, KEPT_SECONDS, NOTHING_YET, rateOf } from "./live-state.ts";
import { quantile } from "./quantile.ts";

const summary = (atMs: number, given: Partial<FeedSummary>): LiveEvent => ({
  kind: "summary",
  atMs,
  summary: { at: "", counts: [], retries: 0, isComplete: true, changes: [], ...given },
});

const status = (atMs: number, checkpoint: number): LiveEvent => ({
  kind: "status",
  atMs,
  status: {
    latestPosition: "100",
    leader: { term: "1" },
    workers: [],
    consumers: [
      { name: "orders", checkpoint: String(checkpoint), lag: "5", state: "running" },
    ] as unknown as ClusterStatus["consumers"],
    openGaps: { positions: [], holders: [] },
    queues: [],
    failingSchedules: [],
  },
});

describe("the state that events make", () => {
  it("adds what happened within one second", () => {
    const first = summary(10_100, {
      counts: [
        { queue: "mails", state: "pending", count: 5 },
        { queue: "mails", state: "completed", count: 2 },
      ],
      retries: 2,
    });
    const second = summary(10_900, {
      counts: [
        { queue: "mails", state: "completed", count: 3 },
        { queue: "mails", state: "dead", count: 1 },
      ],
    });
    const { seconds } = [first, second].reduce(fold, NOTHING_YET);
    expect(seconds).toHaveLength(1);
    expect(seconds[0]).toMatchObject({ at: 10, enqueued: 3, completed: 5, failed: 1, retried: 2 });
  });

  it("does not take what was missed for what happens now", () => {
    const counts = [{ queue: "mails", state: "completed" as const, count: 900 }];
    const missed = fold(NOTHING_YET, summary(10_100, { counts, isReplay: true }));
    expect([missed.seconds, rateOf(missed, "mails", 11)]).toEqual([[], 0]);
  });

  it("forgets what is older than its minutes", () => {
    const counts = [{ queue: "mails", state: "completed" as const, count: 1 }];
    let state = fold(NOTHING_YET, summary(1_000, { counts }));
    state = fold(state, summary(1_000 + KEPT_SECONDS * 1000, { counts }));
    expect(state.seconds.map(({ at }) => at)).toEqual([1 + KEPT_SECONDS]);
  });

  it("tells how many tasks of a queue end per second", () => {
    const counts = [{ queue: "mails", state: "completed" as const, count: 30 }];
    const state = fold(NOTHING_YET, summary(100_000, { counts }));
    expect(rateOf(state, "mails", 101)).toBe(3);
    expect(rateOf(state, "mails", 120)).toBe(0);
    expect(rateOf(state, "others", 101)).toBe(0);
  });

  it("tells how fast a consumer goes, and not across a rewind", () => {
    const going = [status(0, 10), status(2_000, 30)].reduce(fold, NOTHING_YET);
    expect(consumerRate(going, "orders")).toBe(10);
    const rewound = fold(going, status(4_000, 0));
    expect(consumerRate(rewound, "orders")).toBeUndefined();
  });
});

describe("quantile", () => {
  it("lies within the class that holds it", () => {
    expect(quantile([0, 0, 0, 0], 0.5)).toBeUndefined();
    expect(quantile([10], 0.5)).toBe(0.5);
    expect(quantile([0, 0, 0, 0, 0, 4, 4], 0.95)).toBe(95);
  });
});
