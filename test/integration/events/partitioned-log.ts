import type pg from "pg";
import type { Tidemill } from "../../../src/index.ts";

export const PARTITIONING = { strategy: "native", size: 100, ahead: 2 } as const;

/** Names of the log's partitions in order, and where each begins and ends. */
export async function partitionsOf(pool: pg.Pool, table = "tidemill.events"): Promise<string[]> {
  const { rows } = await pool.query<{ name: string }>(
    `SELECT relname AS name FROM pg_inherits JOIN pg_class ON oid = inhrelid
      WHERE inhparent = $1::regclass ORDER BY 1`,
    [table],
  );
  return rows.map((row) => row.name);
}

/** Appends `count` events, one stream after the other. */
export async function appendMany(mill: Tidemill, count: number, each = 10): Promise<void> {
  for (let done = 0; done < count; done += each) {
    const events = Array.from({ length: each }, (_, index) => ({
      type: "Step",
      data: done + index,
    }));
    await mill.append({ type: "Order", id: String((done / each) % 7) }, events);
  }
}
