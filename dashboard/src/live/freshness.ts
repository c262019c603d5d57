import type { LiveState } from "./live-state.ts";

/** The cluster is told every two seconds, and at the least every five. */
const STALE_MS = 10_000;

type Known = Pick<LiveState, "connection" | "status" | "statusAtMs">;

/**
 * Since when what is known of the cluster may be wrong; undefined while it is the present. While
 * the feed is held it is told all the same, before the connection counts as live.
 */
export function staleSinceMs(known: Known, nowMs: number): number | undefined {
  const { connection, status, statusAtMs } = known;
  const isTold = connection.state === "live" || status?.feedHeld !== undefined;
  return isTold && nowMs - statusAtMs <= STALE_MS ? undefined : statusAtMs;
}
