import { constants } from "node:os";

/** What became of work when something stopped. */
export interface Stopped {
  /**
   * Tasks, batches, deliveries, notices, and messages of Kafka, that had begun, did not end in time
   * and were given back: somebody else does them again.
   */
  readonly givenBack: number;
}

/** What runs until it is stopped: a worker, a server, an ingest or a publisher of Kafka. */
export interface Stoppable {
  /** Settles when it has ended; rejects when it could not go on. */
  readonly finished: Promise<unknown>;
  stop(): Promise<Stopped>;
}

/** The exit code of a process that had to give work back: somebody else does it again. */
export const EXIT_GAVE_BACK = 75;

/** Terminals and process managers may send the first signal twice. */
const SAME_SIGNAL_MS = 100;

/** Aborts at the first SIGINT or SIGTERM, and ends the process at a second. */
export function stopSignal(): { readonly signal: AbortSignal; readonly release: () => void } {
  const controller = new AbortController();
  let askedAt: number | undefined;
  const onSignal = (name: NodeJS.Signals): void => {
    if (askedAt !== undefined && performance.now() - askedAt > SAME_SIGNAL_MS) {
      process.exit(128 + constants.signals[name]);
    }
    askedAt ??= performance.now();
    controller.abort();
  };
  process.on("SIGINT", onSignal);
  process.on("SIGTERM", onSignal);
  return {
    signal: controller.signal,
    release: () => {
      process.off("SIGINT", onSignal);
      process.off("SIGTERM", onSignal);
    },
  };
}

/**
 * Lets them run until SIGTERM or SIGINT, or until one of them ends, then stops all of them at once,
 * each in its own order. Resolves with the exit code: 0 when everything that had begun ended, 75
 * when some of it had to be given back. Rejects when one of them could not go on. A second signal
 * ends the process at once, with 143 or 130; what it ran is given to others when its lease ends.
 */
export async function runUntilSignal(...running: readonly Stoppable[]): Promise<number> {
  const { signal, release } = stopSignal();
  try {
    const asked = new Promise<void>((resolve) => {
      signal.addEventListener("abort", () => resolve(), { once: true });
    });
    const finished = running.map((one) => one.finished);
    let failure: { readonly error: unknown } | undefined;
    await Promise.race([asked, ...finished]).catch((error: unknown) => {
      failure = { error };
    });
    const stopped = await Promise.all(running.map((one) => one.stop()));
    if (failure !== undefined) throw failure.error;
    await Promise.all(finished);
    return stopped.some(({ givenBack }) => givenBack > 0) ? EXIT_GAVE_BACK : 0;
  } finally {
    release();
  }
}
