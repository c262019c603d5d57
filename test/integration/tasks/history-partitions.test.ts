import type pg from "pg";
import { expect, it } from "vitest";
import type { Database } from "../../../src/db/database.ts";
import { dropHistory, makeHistoryPartitions } from "../../../src/tasks/sql/housekeeping.ts";
import { onCleanup, type TestDatabase, testDatabase } from "../../support/database.ts";
import { engineDatabase } from "../../support/engine-database.ts";
import { eventually } from "../../support/eventually.ts";

/* Days of history come and go while everybody works. */

function engineOf(database: TestDatabase): Database {
  const db = engineDatabase(database.url);
  onCleanup(() => db.close());
  return db;
}

async function daysOf(database: TestDatabase, table: string): Promise<string[]> {
  const { rows } = await database.pool.query<{ day: string }>(
    `SELECT right(inhrelid::regclass::text, 8) AS day
       FROM pg_inherits
      WHERE inhparent = $1::regclass AND inhrelid::regclass::text ~ '_[0-9]{8}$'
      ORDER BY 1`,
    [`tidemill.${table}`],
  );
  return rows.map(({ day }) => day);
}

const isWaiting = async (database: TestDatabase): Promise<boolean> => {
  const { rows } = await database.pool.query(
    `SELECT FROM pg_stat_activity
      WHERE datname = current_database() AND wait_event_type = 'Lock'
        AND query LIKE '%make_history_partitions%'`,
  );
  return rows.length > 0;
};

/** A row of today, as a completion writes it; refused when it has to wait. */
async function insertEnded(session: pg.Client): Promise<void> {
  await session.query("SET statement_timeout = '5s'");
  await session.query(
    `INSERT INTO tidemill.task_history
            (id, created_at, run_at, lease_generation, attempt, max_attempts, priority, state,
             tenant, queue)
     VALUES (1, NOW(), NOW(), 1, 1, 1, 5, 'completed', 'default', 'mail')`,
  );
}

it("are made while one who reads both tables has begun with the other", async () => {
  const database = await testDatabase();
  const db = engineOf(database);
  const reader = await database.session();
  await reader.query("BEGIN");
  await reader.query("SELECT count(*) FROM tidemill.task_failures");
  const making = makeHistoryPartitions(db, 5);
  await eventually(async () => expect(await isWaiting(database)).toBe(true));
  await reader.query("SELECT count(*) FROM tidemill.task_history");
  await reader.query("COMMIT");
  expect(await making).toBeGreaterThan(0);
  expect(await daysOf(database, "task_history")).toHaveLength(6);
  expect(await daysOf(database, "task_failures")).toHaveLength(6);
  expect(await makeHistoryPartitions(db, 5)).toBe(0);
});

it("let completions go on while they wait for somebody who reads", async () => {
  const database = await testDatabase();
  const reader = await database.session();
  await reader.query("BEGIN");
  await reader.query("SELECT count(*) FROM tidemill.task_history");
  const making = makeHistoryPartitions(engineOf(database), 5);
  await eventually(async () => expect(await isWaiting(database)).toBe(true));
  await insertEnded(await database.session());
  await reader.query("COMMIT");
  await making;
});

it("are dropped when they are old, of both tables", async () => {
  const database = await testDatabase();
  const db = engineOf(database);
  for (const table of ["task_history", "task_failures"]) {
    await database.pool.query(
      `CREATE TABLE tidemill.${table}_20200102 PARTITION OF tidemill.${table}
         FOR VALUES FROM ('2020-01-02 00:00:00+00') TO ('2020-01-03 00:00:00+00')`,
    );
  }
  const before = await daysOf(database, "task_history");
  expect(before[0]).toBe("20200102");
  expect(await dropHistory(db, 7)).toBe(2);
  expect(await daysOf(database, "task_history")).toEqual(before.slice(1));
  expect(await daysOf(database, "task_failures")).not.toContain("20200102");
});
