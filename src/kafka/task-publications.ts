import { exponentialMs } from "../base/backoff.ts";
import { pause, systemClock } from "../base/clock.ts";
import { isUnavailable } from "../db/sqlstate.ts";
import type { Tidemill } from "../worker/tidemill.ts";
import { readPublications, removePublication } from "./sql/task-publications.ts";

const TRIES = 40;
const PAUSE_MS = 20;
const PAUSE_MS_MAX = 1_000;

/**
 * What changes the triggers needs a moment without a transaction that ends tasks, and waits for it
 * only shortly, because it holds up those that come after it. So it is tried again, for half a
 * minute.
 */
export async function betweenEnds<T>(work: () => Promise<T>, signal: AbortSignal): Promise<T> {
  for (let tries = 1; ; tries += 1) {
    try {
      return await work();
    } catch (error) {
      if (!isUnavailable(error) || tries === TRIES || signal.aborted) throw error;
    }
    await pause(exponentialMs(tries, PAUSE_MS, PAUSE_MS_MAX), systemClock, signal);
  }
}

/** For those who decide about publications, and do not publish. */
export interface TaskPublication {
  readonly name: string;
  /** Ends up to it are published, or refused. */
  readonly position: bigint;
  /** Ends behind it, more or less. */
  readonly waiting: bigint;
  /** How long the oldest of them has waited; undefined when there is none. */
  readonly waitingSeconds: number | undefined;
  /** Whether some process publishes now. */
  readonly isHeld: boolean;
  /** Undefined: all of them. */
  readonly queues: readonly string[] | undefined;
}

/** Publications of tasks that ends are kept for. */
export async function listTaskPublications(mill: Tidemill): Promise<TaskPublication[]> {
  const rows = await readPublications(mill.engine.db);
  return rows.map((row) => ({
    name: row.name,
    position: BigInt(row.position),
    waiting: BigInt(row.waiting),
    waitingSeconds: row.waiting_seconds ?? undefined,
    isHeld: row.is_held,
    queues: row.queues ?? undefined,
  }));
}

/**
 * Forgets a publication for good: ends are no longer kept for it, and those that were not published
 * are gone. A process that publishes under it ends. False when there is none.
 */
export async function removeTaskPublication(mill: Tidemill, name: string): Promise<boolean> {
  const never = new AbortController().signal;
  const { db } = mill.engine;
  return await betweenEnds(() => removePublication(db, name), never);
}
