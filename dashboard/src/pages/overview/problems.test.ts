import { expect, it } from "vitest";
import type { ClusterStatus, Consumer, Queue, Worker } from "../../api/types.ts";
import { problemsOf } from "./problems.ts";

const WORKER: Worker = {
  id: "0195a1b2-0000-7000-8000-00000000abcd",
  status: "active",
  host: "a",
  pid: 12,
  heartbeatAgeSeconds: 1,
  isLeader: true,
  assigned: [],
  load: {},
};
const CONSUMER: Consumer = {
  name: "orders",
  checkpoint: "9181",
  lag: "12",
  workerId: WORKER.id,
  state: "running",
  parkedStreams: 0,
  parkedEvents: 0,
  isParkedCut: false,
};
const QUEUE: Queue = {
  name: "mails",
  isPaused: false,
  limits: { concurrency: null, rate: null, keyRate: null },
  depths: { "5": 3 },
  running: 1,
  dead: 0,
};
const FINE: ClusterStatus = {
  at: "1970-01-01T00:00:00Z",
  latestPosition: "9193",
  leader: { term: "3", workerId: WORKER.id },
  workers: [WORKER],
  consumers: [CONSUMER],
  openGaps: { positions: [], holders: [] },
  queues: [QUEUE],
  failingSchedules: [],
};
const said = (change: Partial<ClusterStatus>): string[] =>
  problemsOf({ ...FINE, ...change }).map(({ what }) => what);

it("says nothing when nothing is wrong", () => {
  expect(problemsOf(FINE)).toEqual([]);
});

it("names who holds a consumer, where, and how to end it", () => {
  const holder = {
    pid: 4711,
    user: "app",
    application: "shop",
    state: "idle in transaction",
    ageSeconds: 180,
    query: "INSERT",
  };
  const [problem] = problemsOf({
    ...FINE,
    openGaps: { positions: ["9182"], holders: [holder] },
  });
  expect(problem?.what).toBe(
    "Consumer orders is held at position 9,182 by pid 4711 (shop, app), " +
      "idle in transaction for 3 min.",
  );
  expect(problem?.next).toContain("pg_terminate_backend(4711)");
  const fresh = { positions: ["9182"], holders: [{ ...holder, ageSeconds: 0.2 }] };
  expect(said({ openGaps: fresh })).toEqual([]);
});

it("names who holds the feed, and how to end it", () => {
  const holder = {
    pid: null,
    user: "app",
    application: "transfer-7",
    state: "prepared",
    ageSeconds: 90,
    query: null,
  };
  const [problem] = problemsOf({ ...FINE, feedHeld: { seconds: 80, holders: [holder] } });
  expect(problem?.what).toBe(
    "The feed is held for 80 s by prepared transaction transfer-7, prepared for 90 s, which " +
      "changed tasks: what was changed after that is not shown live.",
  );
  expect(problem?.next).toBe("Commit or roll back the prepared transaction transfer-7.");
  expect(said({ feedHeld: { seconds: 2, holders: [] } })[0]).toContain("by an open transaction");
});

it("tells of schedules that cannot fire", () => {
  const failing = { tenant: "acme", name: "nightly", error: "there is no queue" };
  expect(said({ failingSchedules: [failing] })).toEqual([
    "Schedule nightly of tenant acme cannot fire: there is no queue",
  ]);
});

it("calls a heartbeat late by what the worker says of itself", () => {
  const slow = { ...WORKER, load: { heartbeatSeconds: 10 } };
  expect(said({ workers: [{ ...slow, heartbeatAgeSeconds: 8 }] })).toEqual([]);
  expect(said({ workers: [{ ...slow, heartbeatAgeSeconds: 22 }] })).toHaveLength(1);
  expect(said({ workers: [{ ...WORKER, heartbeatAgeSeconds: 8 }] })).toHaveLength(1);
});

it("tells of consumers that stand still", () => {
  const poison = { position: "9182", error: "no such order", failures: 5 };
  expect(said({ consumers: [{ ...CONSUMER, state: "quarantined", poison }] })).toEqual([
    "Consumer orders stopped at position 9,182 after 5 failures: no such order",
  ]);
  expect(said({ consumers: [{ ...CONSUMER, state: "unassigned" }] })).toEqual([
    "No worker runs consumer orders, which is 12 events behind.",
  ]);
  expect(said({ consumers: [{ ...CONSUMER, state: "unassigned", lag: "0" }] })).toEqual([]);
  const parked = (events: number, streams: number, isParkedCut: boolean): string[] =>
    said({
      consumers: [{ ...CONSUMER, parkedEvents: events, parkedStreams: streams, isParkedCut }],
    });
  expect(parked(3, 1, false)).toEqual(["Consumer orders has set aside 3 events of 1 stream."]);
  expect(parked(10_000, 57, true)).toEqual([
    "Consumer orders has set aside 10,000 or more events of 57 streams.",
  ]);
  expect(parked(10_000, 10_000, true)).toEqual([
    "Consumer orders has set aside 10,000 or more events of 10,000 or more streams.",
  ]);
});

it("tells of queues that are paused, stuck or have dead tasks", () => {
  expect(said({ queues: [{ ...QUEUE, isPaused: true, pauseReason: "a fire" }] })).toEqual([
    "Queue mails is paused (a fire) with 3 tasks in it.",
  ]);
  expect(said({ queues: [{ ...QUEUE, running: 0, oldestPendingSeconds: 180 }] })).toEqual([
    "Nobody takes tasks of queue mails: the oldest waits for 3 min.",
  ]);
  expect(said({ queues: [{ ...QUEUE, dead: 1 }] })).toEqual(["1 task of queue mails died."]);
  expect(said({ queues: [{ ...QUEUE, dead: 10_000, isDeadCut: true }] })).toEqual([
    "10,000 or more tasks of queue mails died.",
  ]);
});

it("does not call a queue stuck whose tasks are taken, or may not be", () => {
  const waits: Queue = { ...QUEUE, running: 0, oldestPendingSeconds: 180 };
  const rate = { count: 1, seconds: 1 };
  const limited: Queue = { ...waits, limits: { ...QUEUE.limits, rate } };
  const slow: Queue = { ...waits, limits: { ...QUEUE.limits, rate: { count: 1, seconds: 60 } } };
  const stuck = (queue: Queue, watched: number, ago?: number): boolean =>
    problemsOf(
      { ...FINE, queues: [queue] },
      { watchedSeconds: watched, movedAgo: ago === undefined ? {} : { mails: ago } },
    ).length > 0;
  expect([stuck(waits, 0), stuck(waits, 300, 12), stuck(waits, 300, 4)]).toEqual([
    true,
    true,
    false,
  ]);
  // Between two starts of one a second nothing runs most of the time.
  expect([stuck(limited, 4), stuck(limited, 300, 4)]).toEqual([false, false]);
  expect([stuck(limited, 12), stuck(limited, 300, 12)]).toEqual([true, true]);
  expect([stuck(slow, 120), stuck(slow, 300, 70), stuck(slow, 300, 200)]).toEqual([
    false,
    false,
    true,
  ]);
  expect(said({ queues: [{ ...waits, limits: { ...QUEUE.limits, concurrency: 0 } }] })).toEqual([
    "Queue mails has a limit of 0 at once, with 3 tasks in it.",
  ]);
});

it("puts the worst first", () => {
  const severities = problemsOf({
    ...FINE,
    queues: [{ ...QUEUE, dead: 1 }],
    consumers: [{ ...CONSUMER, state: "quarantined" }],
    workers: [{ ...WORKER, heartbeatAgeSeconds: 9 }],
  }).map(({ severity }) => severity);
  expect(severities).toEqual(["bad", "warn", "warn"]);
  expect(said({ workers: [] })[0]).toContain("No worker is running");
});
