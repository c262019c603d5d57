import type pg from "pg";
import { expect } from "vitest";
import type { Tidemill, WorkerOptions } from "../../../src/index.ts";
import type { TestDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";

/** Everything happens within a second; long enough that a busy machine is not taken for dead. */
export const BRISK = {
  heartbeatInterval: 200,
  heartbeatTimeout: 5_000,
  rebalanceInterval: 200,
  dispatcherStrategy: "notify",
  drainTimeout: 500,
} as const satisfies WorkerOptions;

export interface Gate {
  readonly opened: Promise<void>;
  open(): void;
}

/** What a handler waits for until the test lets it go on. */
export function gate(): Gate {
  let open = (): void => {};
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { opened, open };
}

/** Resolves with the reason when the signal aborts. */
export async function aborted(signal: AbortSignal): Promise<unknown> {
  if (!signal.aborted) {
    await new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));
  }
  return signal.reason;
}

/** Whatever an enqueue may leave behind. */
export async function readStored({ pool }: TestDatabase): Promise<{
  tasks: number;
  tally: number;
  keys: number;
}> {
  const { rows } = await pool.query<{ tasks: number; tally: number; keys: number }>(
    `SELECT (SELECT count(*)::int FROM tidemill.tasks) AS tasks,
            (SELECT COALESCE(sum(amount), 0)::int
               FROM (SELECT amount FROM tidemill.task_tally
                      UNION ALL SELECT depth FROM tidemill.task_depths) AS one) AS tally,
            (SELECT count(*)::int FROM tidemill.task_idempotency) AS keys`,
  );
  const [row] = rows;
  if (row === undefined) throw new Error("no counts");
  return row;
}

/** The first column of every row. */
export async function readColumn<T>(
  { pool }: TestDatabase,
  text: string,
  values: unknown[] = [],
): Promise<T[]> {
  const { rows } = await pool.query<Record<string, T>>(text, values);
  return rows.flatMap((row) => Object.values(row).slice(0, 1));
}

/** Runs the work in a transaction of the caller's own, which ends as told. */
export async function inTransaction<T>(
  database: TestDatabase,
  end: "COMMIT" | "ROLLBACK",
  work: (client: pg.PoolClient) => Promise<T>,
): Promise<T> {
  const client = await database.pool.connect();
  try {
    await client.query("BEGIN");
    const result = await work(client);
    await client.query(end);
    return result;
  } finally {
    client.release();
  }
}

export const range = (count: number): number[] => Array.from({ length: count }, (_, n) => n);

/** So many workers share the buckets, and nothing moves any more. */
export async function ringSettled(mill: Tidemill, workers: number): Promise<void> {
  await eventually(async () => {
    const [ring] = await mill.queues.ring();
    const sizes = ring?.owners.map(({ buckets }) => buckets.length) ?? [];
    expect(sizes).toEqual(range(workers).map(() => 360 / workers));
  });
}

/** As long as a handler's work takes; nothing is synchronised by it. */
export async function labour(ms: number): Promise<void> {
  const endMs = performance.now() + ms;
  const check = (): void => {
    if (performance.now() < endMs) throw new Error("still at work");
  };
  await eventually(check, { everyMs: ms });
}

/** Looks again and again until `done`; the largest it saw. */
export async function sampleMax(
  database: TestDatabase,
  text: string,
  done: () => boolean,
): Promise<number> {
  const session = await database.session();
  let max = 0;
  while (!done()) {
    const found = await session.query<{ n: number }>(text).catch(() => undefined);
    if (found === undefined) return -1; // The test is over, and has failed for another reason.
    max = Math.max(max, found.rows[0]?.n ?? 0);
  }
  return max;
}
