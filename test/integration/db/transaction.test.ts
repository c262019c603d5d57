import { expect, it } from "vitest";
import { statement } from "../../../src/db/statement.ts";
import { openDatabase } from "../../../src/worker/connect.ts";
import { testDatabase } from "../../support/database.ts";

const READ = "SELECT current_setting('idle_in_transaction_session_timeout') AS limit";
const LIMIT = statement("idle_limit", READ);

it("that never waits is ended by the server when its connection falls silent", async () => {
  const { url } = await testDatabase();
  const db = openDatabase(url, { poolSize: 1 });
  expect(await db.transaction((tx) => tx.query(LIMIT))).toEqual([{ limit: "10s" }]);
  expect(await db.query(LIMIT)).toEqual([{ limit: "0" }]);
  await db.close();
});

it("of a caller may take its time between statements", async () => {
  const database = await testDatabase();
  const mill = await database.connect();
  const { rows } = await mill.transaction((tx) => tx.query(READ));
  expect(rows).toEqual([{ limit: "0" }]);
});
