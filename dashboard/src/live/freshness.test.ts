import { expect, it } from "vitest";
import type { ClusterStatus } from "../api/types.ts";
import type { Connection } from "./events.ts";
import { staleSinceMs } from "./freshness.ts";

const STATUS: ClusterStatus = {
  at: "1970-01-01T00:00:00Z",
  latestPosition: "0",
  leader: { term: "1" },
  workers: [],
  consumers: [],
  openGaps: { positions: [], holders: [] },
  queues: [],
  failingSchedules: [],
};
const HELD = { ...STATUS, feedHeld: { seconds: 5, holders: [] } };
const LIVE: Connection = { state: "live" };
const CONNECTING: Connection = { state: "connecting" };
const LOST: Connection = { state: "lost", retryAtMs: 0, reason: "" };

it.each([
  ["live and told a moment ago", { connection: LIVE, status: STATUS }, 2_000, undefined],
  ["live and not told for long", { connection: LIVE, status: STATUS }, 10_001, 1_000],
  ["not live", { connection: LOST, status: STATUS }, 1_000, 1_000],
  ["not live again yet", { connection: CONNECTING, status: STATUS }, 1_000, 1_000],
  ["told before the feed goes on", { connection: CONNECTING, status: HELD }, 2_000, undefined],
  ["not told any more, whoever held it", { connection: LOST, status: HELD }, 10_001, 1_000],
])("%s", (_, known, ageMs, since) => {
  expect(staleSinceMs({ ...known, statusAtMs: 1_000 }, 1_000 + ageMs)).toBe(since);
});
