/**
 * The only source of time inside the runtime. Production uses the monotonic clock of the process;
 * simulations pass a seeded one. Wall-clock decisions (liveness, leases) belong to PostgreSQL.
 */
export interface Clock {
  /** Monotonic milliseconds. Differences are meaningful, absolute values are not. */
  now(): number;
  /** Calls `wake` once after `ms`. The returned function cancels it and may be called twice. */
  after(ms: number, wake: () => void): () => void;
}

const TIMER_MS_MAX = 2 ** 31 - 1;

export const systemClock: Clock = {
  now: () => performance.now(),
  after(ms, wake) {
    // A longer timer of Node's would fire at once.
    if (ms > TIMER_MS_MAX) {
      let cancel = (): void => clearTimeout(timer);
      const timer = setTimeout(() => {
        cancel = systemClock.after(ms - TIMER_MS_MAX, wake);
      }, TIMER_MS_MAX);
      return () => cancel();
    }
    const timer = setTimeout(wake, ms);
    return () => clearTimeout(timer);
  },
};

/**
 * Milliseconds since 1970 as this machine believes. Only for dates that others wrote and that
 * PostgreSQL does not know, such as the expiry of a signed token; tests pass their own.
 */
export type WallClock = () => number;

export const wallClock: WallClock = () => Date.now();

/** Between 0 and 1, for jitter. Simulations pass a seeded one. */
export const chance = (): number => Math.random();

/** The present as a person writes it, for names of files. Decides nothing. */
export function wallClockStamp(): string {
  return new Date().toISOString().replace(/\D/g, "").slice(0, 14);
}

/** Waits `ms`, or until `signal` aborts. Waiting never throws. */
export function pause(ms: number, clock: Clock, signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.resolve();
  return new Promise((resolve) => {
    const done = (): void => {
      cancel();
      signal.removeEventListener("abort", done);
      resolve();
    };
    const cancel = clock.after(ms, done);
    signal.addEventListener("abort", done, { once: true });
  });
}

/** Waits for `done`, but `ms` at most; whether it came in time. Rejects as it does. */
export async function withinMs(done: Promise<unknown>, ms: number, clock: Clock): Promise<boolean> {
  const over = new AbortController();
  const late = pause(ms, clock, over.signal).then(() => false);
  try {
    return await Promise.race([done.then(() => true), late]);
  } finally {
    over.abort();
  }
}
