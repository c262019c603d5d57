import { systemClock } from "../base/clock.ts";

export interface PollLimits {
  readonly everyMs: number;
  readonly msMax: number;
}

/**
 * Asks `probe` until it answers something other than `undefined`, or until `msMax` have passed, and
 * then answers `undefined`. Processes that are not our children, and files that other processes
 * write, announce nothing portable; a bounded poll is what is left.
 */
export async function pollUntil<T>(
  probe: () => Promise<T | undefined>,
  { everyMs, msMax }: PollLimits,
): Promise<T | undefined> {
  const deadline = systemClock.now() + msMax;
  for (;;) {
    const answer = await probe();
    if (answer !== undefined || systemClock.now() >= deadline) return answer;
    await new Promise<void>((resolve) => systemClock.after(everyMs, resolve));
  }
}
