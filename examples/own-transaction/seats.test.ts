import { expect, it } from "vitest";
import { testDatabase } from "../../test/support/database.ts";
import { runProgram } from "../run-program.ts";

it("commits the row with the event and refuses who decided on an old version", async () => {
  const database = await testDatabase({ migrated: false });
  expect(await runProgram(new URL("seats.ts", import.meta.url), database.url)).toEqual([
    "Ada has the seat, version 1",
    "Grace is too late: stream Seat/12A is at version 1, expected 0, taken by Ada",
    '1 event, {"passenger":"Ada"}',
  ]);
}, 60_000);
