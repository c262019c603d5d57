import { expect, it } from "vitest";
import { testDatabase } from "../../test/support/database.ts";
import { runProgram } from "../run-program.ts";

it("handles all there is, returns, and finds nothing to do the second time", async () => {
  const database = await testDatabase({ migrated: false });
  expect(await runProgram(new URL("catch-up.ts", import.meta.url), database.url)).toEqual([
    "handled up to position 1200",
    "nothing new: still 1200",
    '[{"page":"home","count":800},{"page":"pricing","count":400}]',
  ]);
}, 60_000);
