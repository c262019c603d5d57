import { expect, it } from "vitest";
import { testDatabase } from "../../test/support/database.ts";
import { runProgram } from "../run-program.ts";

it("shows a paid order in the view as soon as waitFor returns", async () => {
  const database = await testDatabase({ migrated: false });
  const program = new URL("orders.ts", import.meta.url);
  const row = '[{"customer":"Ada","cents":4200,"status":"paid"}]';
  expect(await runProgram(program, database.url)).toEqual([row]);
  expect(await runProgram(program, database.url)).toEqual([row]);
  const { rows } = await database.pool.query("SELECT status FROM order_view");
  expect(rows).toEqual([{ status: "paid" }, { status: "paid" }]);
}, 60_000);
