import { expect, it } from "vitest";
import { testDatabase } from "../../test/support/database.ts";
import { runProgram } from "../run-program.ts";

it("stops the consumer at the bad event and goes on there after the fix", async () => {
  const database = await testDatabase({ migrated: false });
  expect(await runProgram(new URL("poison.ts", import.meta.url), database.url)).toEqual([
    "consumer balances_v1 is quarantined at 1 and will not reach 3",
    "quarantined after 3 failures at event 2",
    "because: cents is missing",
    '[{"cents":111}]',
  ]);
  const { rows } = await database.pool.query("SELECT action FROM tidemill.operator_actions");
  expect(rows).toEqual([{ action: "resume" }]);
}, 60_000);
