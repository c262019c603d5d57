import { describe, expect, it } from "vitest";
import type { ClusterStatus, Queue, Worker } from "../api/types.ts";
import type { FeedSummary, LiveEvent } from "./events.ts";
import { appendRate, consumerRate, fold, KEPT_SECONDS, NOTHING_YET, rateOf } from "./live-state.ts";
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
    at: new Date(atMs).toISOString(),
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

describe("a queue", () => {
  const queue = (name: string, depth: number, oldestPendingSeconds?: number, running = 0) =>
    ({ name, depths: { "5": depth }, oldestPendingSeconds, running }) as unknown as Queue;
  const told = (atMs: number, ...queues: Queue[]): LiveEvent => {
    const event = status(atMs, 0);
    return event.kind === "status" ? { ...event, status: { ...event.status, queues } } : event;
  };

  it("is seen to move by what runs, by fewer tasks, and by another first one", () => {
    const first = [
      queue("still", 5, 70),
      queue("fewer", 5, 70),
      queue("next", 5, 70),
      queue("runs", 5, 70),
    ];
    const second = [
      queue("still", 6, 72),
      queue("fewer", 4, 72),
      queue("next", 5, 71),
      queue("runs", 5, 72, 1),
    ];
    const { moved } = [told(10_000, ...first), told(12_000, ...second)].reduce(fold, NOTHING_YET);
    expect(moved).toEqual({ fewer: 12, next: 12, runs: 12 });
  });

  it("is seen to move by what became of tasks, until it is gone", () => {
    const counts = [{ queue: "mails", state: "completed" as const, count: 1 }];
    const before = fold(NOTHING_YET, told(10_000, queue("mails", 5, 70)));
    const after = fold(before, summary(11_000, { counts }));
    expect(after.moved).toEqual({ mails: 11 });
    expect(fold(after, told(12_000, queue("mails", 5, 72))).moved).toEqual({ mails: 11 });
    expect(fold(after, told(12_000)).moved).toEqual({});
  });
});

it("has heartbeats by the clock of the database, whatever that of the browser says", () => {
  const event = status(10_000, 0);
  if (event.kind !== "status") throw new Error("it is a status");
  const worker = { id: "w", status: "active", heartbeatAgeSeconds: 3 } as Worker;
  const ahead = { ...event.status, at: new Date(400_000).toISOString(), workers: [worker] };
  const { moments } = fold(NOTHING_YET, { ...event, status: ahead });
  expect(moments[0]).toMatchObject({ at: 10, serverAt: 400, beats: { w: 397 } });
});

it("tells how fast the log grows, over the same half minute", () => {
  const grown = (atMs: number, latest: number): LiveEvent => {
    const event = status(atMs, 0);
    return event.kind === "status"
      ? { ...event, status: { ...event.status, latestPosition: String(latest) } }
      : event;
  };
  const state = [grown(0, 0), grown(20_000, 900), grown(40_000, 1_000)].reduce(fold, NOTHING_YET);
  expect(appendRate(state)).toBe(5);
  expect(appendRate(NOTHING_YET)).toBe(0);
});

describe("quantile", () => {
  it("lies within the class that holds it", () => {
    expect(quantile([0, 0, 0, 0], 0.5)).toBeUndefined();
    expect(quantile([10], 0.5)).toBe(0.5);
    expect(quantile([0, 0, 0, 0, 0, 4, 4], 0.95)).toBe(95);
  });
});
