import { expect, it } from "vitest";
import { Tidemill } from "../../../src/index.ts";
import { testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";

const SESSIONS = `
  SELECT application_name FROM pg_stat_activity
   WHERE datname = current_database() AND application_name LIKE 'tidemill%'`;

it("may be closed twice, also at the same time", async () => {
  const database = await testDatabase();
  const mill = await Tidemill.connect(database.url);
  await Promise.all([mill.close(), mill.close()]);
  await expect(mill.close()).resolves.toBeUndefined();
});

it("leaves no session on the server when it is closed", async () => {
  const database = await testDatabase();
  {
    await using mill = await Tidemill.connect(database.url);
    await Promise.all(Array.from({ length: 5 }, () => mill.latestPosition()));
  }
  // A session is over when its process is, which may be a moment after the connection.
  await eventually(async () => expect((await database.pool.query(SESSIONS)).rows).toEqual([]), {
    timeoutMs: 2_000,
  });
});

it("refuses to go on after it was closed", async () => {
  const database = await testDatabase();
  const mill = await Tidemill.connect(database.url);
  await mill.close();
  await expect(mill.latestPosition()).rejects.toThrow(/closed|end/);
});
