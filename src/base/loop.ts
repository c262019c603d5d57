import type { Bell } from "./bell.ts";
import { type Clock, pause } from "./clock.ts";

/** `again`: more may be waiting. Otherwise rest that long, or until the bell unless `isDeaf`. */
export type TurnResult = "again" | { readonly restMs: number; readonly isDeaf?: boolean };

export interface LoopOptions {
  readonly clock: Clock;
  readonly bell: Bell;
  /** Called for a turn that threw; returns how long to rest, or throws to end the loop. */
  readonly onFailure: (error: unknown, failures: number) => number;
}

/**
 * Repeats `turn` until `signal` aborts: the only place in the runtime that loops on a signal. The
 * loop owns waiting and failure counting; `turn` does one bounded piece of work and never sleeps.
 * A turn that throws because of the shutdown is not a failure.
 */
export async function runLoop(
  turn: (signal: AbortSignal) => Promise<TurnResult>,
  options: LoopOptions,
  signal: AbortSignal,
): Promise<void> {
  const { clock, bell, onFailure } = options;
  let failures = 0;
  while (!signal.aborted) {
    let restMs = 0;
    let isDeaf = false;
    bell.clear(); // Rings from here on may concern work this turn will not see.
    try {
      const result = await turn(signal);
      failures = 0;
      if (result === "again") {
        // Yield to timers and sockets: a loop that always has work must not starve heartbeats.
        await new Promise<void>((resolve) => setImmediate(resolve));
        continue;
      }
      restMs = result.restMs;
      isDeaf = result.isDeaf === true;
    } catch (error) {
      if (signal.aborted) return;
      failures += 1;
      restMs = onFailure(error, failures);
      isDeaf = true; // A failing turn keeps its backoff, whoever rings.
    }
    if (restMs <= 0) {
      // Not even a turn that asks for no rest may keep timers and sockets waiting.
      await new Promise<void>((resolve) => setImmediate(resolve));
      continue;
    }
    await (isDeaf ? pause(restMs, clock, signal) : bell.waitAtMost(restMs, clock, signal));
  }
}
