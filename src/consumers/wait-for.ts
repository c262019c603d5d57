import { type Clock, pause } from "../base/clock.ts";
import { ConflictError, TimeoutError } from "../base/errors.ts";
import type { ConsumerAdmin } from "./admin.ts";

export interface WaitForOptions {
  /** Defaults to 30,000. */
  readonly timeoutMs?: number;
  readonly signal?: AbortSignal;
}

const LOOK_MS_MIN = 5;
const LOOK_MS_MAX = 100;

/**
 * Resolves when the consumer has handled everything up to `position`: read your own writes.
 * Rejects when it is stopped below it, or when the time is up.
 */
export async function waitForPosition(
  admin: ConsumerAdmin,
  consumer: string,
  position: bigint,
  options: WaitForOptions & { readonly clock: Clock },
): Promise<void> {
  const { timeoutMs = 30_000, clock, signal = new AbortController().signal } = options;
  const deadline = clock.now() + timeoutMs;
  for (let restMs = LOOK_MS_MIN; ; restMs = Math.min(restMs * 1.5, LOOK_MS_MAX)) {
    const { checkpoint, state } = await admin.progress(consumer);
    if (checkpoint >= position) return;
    if (state !== undefined) {
      throw new ConflictError(
        `consumer ${consumer} is ${state} at ${checkpoint} and will not reach ${position}`,
      );
    }
    signal.throwIfAborted();
    if (clock.now() >= deadline) {
      throw new TimeoutError(
        `consumer ${consumer} is at ${checkpoint} and did not reach ${position} in ${timeoutMs} ms`,
      );
    }
    await pause(restMs, clock, signal);
  }
}
