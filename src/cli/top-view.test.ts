import { describe, expect, it } from "vitest";
import type { Status } from "../consumers/status.ts";
import type { QueueView } from "../tasks/queue-admin.ts";
import { type Moment, ratesOf, topLine, topLines } from "./top-view.ts";

const queue = (name: string, depth: number): QueueView => ({
  name,
  keySpace: name,
  isPaused: false,
  pauseReason: undefined,
  limits: { concurrency: null, rate: null, keyRate: null },
  depths: { 5: depth },
  running: 1,
  dead: 0,
  isDeadCut: false,
  oldestPendingSeconds: 3,
});

const status = (latest: bigint, checkpoint: bigint): Status => ({
  at: new Date(0),
  latestPosition: latest,
  leader: { term: 2n, workerId: undefined },
  workers: [],
  consumers: [
    {
      name: "orders",
      checkpoint,
      lagSeconds: 0,
      lag: latest - checkpoint,
      workerId: undefined,
      state: "running",
      reason: undefined,
      poison: undefined,
      parkedStreams: 0,
      parkedEvents: 0,
      isParkedCut: false,
    },
  ],
  openGaps: { positions: [], holders: [] },
});

const FIRST: Moment = { atMs: 1_000, status: status(100n, 20n), queues: [queue("mails", 10)] };
const LAST: Moment = {
  atMs: 5_000,
  status: status(140n, 100n),
  queues: [queue("mails", 2), queue("new", 1)],
};

describe("top", () => {
  it("tells rates between looks, and none of what was seen once", () => {
    const { events, depths, consumers } = ratesOf([FIRST, LAST]);
    expect(events).toBe(10);
    expect([...depths]).toEqual([["mails", -2]]);
    expect([...consumers]).toEqual([["orders", 20]]);
    expect(ratesOf([FIRST]).events).toBeUndefined();
    expect(ratesOf([]).events).toBeUndefined();
  });

  it("says when a consumer will be at the head: it gains 10 events a second on 40", () => {
    const lines = topLines(LAST, ratesOf([FIRST, LAST]));
    expect(lines.find((line) => line.includes("orders"))).toMatch(/ 40 +20\.0 +4 s /);
    expect(lines.find((line) => line.includes("mails"))).toMatch(/ 2 +-2\.0 +1 +3 s +-$/);
    expect(lines.find((line) => line.includes("new"))).toMatch(/ 1 +- +1 /);
  });

  it("is one line in a pipe", () => {
    expect(topLine(LAST, ratesOf([FIRST, LAST]))).toBe(
      "position 140  10.0 events/s  0 workers  orders 40 behind  mails 2 live (-2.0/s)  new 1 live",
    );
  });
});
