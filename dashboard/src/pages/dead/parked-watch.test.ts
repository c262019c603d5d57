import { describe, expect, it } from "vitest";
import type { ClusterStatus, Consumer } from "../../api/types.ts";
import type { LiveEvent } from "../../live/events.ts";
import { parkedWatch } from "./parked-watch.ts";

const cluster = (parkedStreams: number, parkedEvents: number): ClusterStatus =>
  ({ consumers: [{ name: "letters", parkedStreams, parkedEvents } as Consumer] }) as never;

const status = (parkedStreams: number, parkedEvents: number): LiveEvent => ({
  kind: "status",
  atMs: 0,
  status: cluster(parkedStreams, parkedEvents),
});

describe("what is parked", () => {
  it("is fetched when it is counted otherwise, and not with every status", () => {
    const concerns = parkedWatch(cluster(3_000, 9_000));
    const told = [status(3_000, 9_000), status(3_000, 9_000), status(3_000, 9_001)].map(concerns);
    expect(told).toEqual([false, false, true]);
    expect([status(2_999, 9_001), status(2_999, 9_001)].map(concerns)).toEqual([true, false]);
    expect([status(0, 0), status(0, 0)].map(concerns)).toEqual([true, false]);
    expect(parkedWatch(undefined)(status(0, 0))).toBe(true); // It may be newer than what is shown.
  });

  it("is fetched when the feed tells of a consumer, however many are parked then", () => {
    const concerns = parkedWatch(undefined);
    expect(concerns({ kind: "cluster", about: "consumer" })).toBe(true);
    expect(concerns({ kind: "cluster", about: "worker" })).toBe(false);
    expect(concerns({ kind: "reset" })).toBe(false); // Everything is fetched then.
  });
});
