import type pg from "pg";
import { expect } from "vitest";
import { eventually } from "./eventually.ts";

/**
 * Makes what a session has counted visible to others; `run` is that session. Before PostgreSQL 15
 * there is no command for it: a session reports as a statement ends half a second after its last
 * report, and others read a file that may be half a second old, but says when it was written.
 */
export async function flushStatistics(
  pool: pg.Pool,
  run: (text: string) => Promise<unknown>,
): Promise<void> {
  const { rows } = await pool.query<{ hasCommand: boolean }>(
    `SELECT current_setting('server_version_num')::int >= 150000 AS "hasCommand"`,
  );
  if (rows[0]?.hasCommand) {
    await run("SELECT pg_stat_force_next_flush()");
    return;
  }
  await run("SELECT pg_sleep(0.6)");
  const reported = await pool.query<{ at: string }>("SELECT clock_timestamp()::text AS at");
  await eventually(async () => {
    const written = await pool.query<{ isLater: boolean }>(
      `SELECT pg_stat_get_snapshot_timestamp() > $1::timestamptz AS "isLater"`,
      [reported.rows[0]?.at],
    );
    expect(written.rows).toEqual([{ isLater: true }]);
  });
}
