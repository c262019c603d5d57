import type { Moment } from "../../live/live-state.ts";

/** Two looks at the same heartbeat differ by what the clocks and the way took. */
const SAME_SECONDS = 0.5;

/** When a worker was heard, oldest first; each heartbeat once, however often it was looked at. */
export function beatsOf(moments: readonly Moment[], worker: string): number[] {
  const beats: number[] = [];
  for (const { beats: told } of moments) {
    const at = told[worker];
    const last = beats.at(-1);
    if (at === undefined || (last !== undefined && at - last < SAME_SECONDS)) continue;
    beats.push(at);
  }
  return beats;
}

/** The longest silence between two heartbeats, and since the last one. */
export function longestSilence(beats: readonly number[], now: number): number {
  return beats.reduce((longest, at, index) => Math.max(longest, (beats[index + 1] ?? now) - at), 0);
}
