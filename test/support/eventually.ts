import { setTimeout as delay } from "node:timers/promises";

export interface EventuallyOptions {
  readonly timeoutMs?: number;
  /** How often to look. */
  readonly everyMs?: number;
}

/**
 * Looks until `check` passes, and fails with its last error when the time is up. For facts that
 * only the database knows; a test that can wait for a signal does that instead.
 */
export async function eventually<T>(
  check: () => Promise<T> | T,
  { timeoutMs = 25_000, everyMs = 15 }: EventuallyOptions = {},
): Promise<T> {
  const deadline = performance.now() + timeoutMs;
  for (;;) {
    try {
      return await check();
    } catch (error) {
      if (performance.now() >= deadline) throw error;
    }
    await delay(everyMs);
  }
}
