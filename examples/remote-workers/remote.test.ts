import { expect, it } from "vitest";
import { testDatabase } from "../../test/support/database.ts";
import { runProgram } from "../run-program.ts";

it("runs tasks in workers without a database, of which one leaves", async () => {
  const database = await testDatabase({ migrated: false });
  expect(await runProgram(new URL("remote.ts", import.meta.url), database.url)).toEqual([
    "100 tasks are stored",
    "worker-1 leaves",
    "100 tasks completed once, by worker-1 and worker-2",
  ]);
}, 60_000);
