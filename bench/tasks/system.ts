import type pg from "pg";
import type { Program } from "../support/program.ts";

/** One way to run tasks, as the benchmark sees it: programs for its roles, and its tables. */
export interface TaskSystem {
  readonly name: string;
  readonly version: string;
  /** How it was set up, for the settings of a figure. */
  readonly tuning: Readonly<Record<string, unknown>>;
  /** What it keeps of completed tasks. */
  readonly history: string;
  readonly program: Program;
  /** Whether its producers and workers speak to a server, which is a process of its own. */
  readonly isServed?: boolean;
  /** Where tasks wait. */
  readonly table: string;
  /**
   * Tasks that are durably completed. Who keeps no trace of them asks how many were `enqueued`,
   * for which the producer stands still until the read is done.
   */
  completed(client: pg.ClientBase, enqueued: () => Promise<number>): Promise<Reading>;
  /** Finds each task that was completed in what the system keeps of them, or throws. */
  verify?(client: pg.ClientBase, enqueued: () => Promise<number>): Promise<void>;
}

/** One read of the store, with the server's clock and log position at its snapshot. */
export interface Reading {
  readonly completed: number;
  readonly atMs: number;
  readonly walBytes: number;
}

/** Reads `count(*)` of a query, named `n`, with the instant at which its snapshot was taken. */
export async function readCount(client: pg.ClientBase, from: string): Promise<Reading> {
  const { rows } = await client.query<{ n: string; at_ms: number; wal: string }>(
    `SELECT n, extract(epoch FROM now())::float8 * 1000 AS at_ms,
            pg_current_wal_insert_lsn() - '0/0'::pg_lsn AS wal
       FROM (SELECT count(*) AS n FROM ${from}) AS counted`,
  );
  const [row] = rows;
  if (row === undefined) throw new Error(`no count of ${from}`);
  return { completed: Number(row.n), atMs: row.at_ms, walBytes: Number(row.wal) };
}
