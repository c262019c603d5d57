import { expect, it } from "vitest";
import { testDatabase } from "../../test/support/database.ts";
import { runProgram } from "../run-program.ts";

it("spreads four consumers over two processes and back, and handles each event once", async () => {
  const database = await testDatabase({ migrated: false });
  expect(await runProgram(new URL("main.ts", import.meta.url), database.url)).toEqual([
    "one worker owns 4 consumers",
    "two workers own 2 consumers each",
    "the first worker stopped with code 0; the second owns 4 consumers",
    '{"handled":80,"workers":2}',
  ]);
  const { rows } = await database.pool.query("SELECT * FROM tidemill.worker_nodes");
  expect(rows).toEqual([]);
}, 60_000);
