import { expect } from "vitest";
import type { TestDatabase } from "../../support/database.ts";
import { runCli, tableCounts } from "./cli.ts";

/** One line that says what to do, the right exit code, and nothing written. */
export async function expectRefused(
  database: TestDatabase,
  args: readonly string[],
  expected: { readonly code: 1 | 2; readonly says: RegExp },
): Promise<void> {
  const before = await tableCounts(database.pool);
  const { code, stdout, stderr } = await runCli(args, { env: { DATABASE_URL: database.url } });
  expect(stderr).toMatch(/^tidemill: [^\n]+\n$/);
  expect(stderr).toMatch(expected.says);
  expect({ code, stdout }).toEqual({ code: expected.code, stdout: "" });
  expect(await tableCounts(database.pool)).toEqual(before);
}

export type Refusal = [args: string[], code: 1 | 2, says: RegExp];

/** Side by side: each is a process, and none of them writes. */
export async function expectAllRefused(
  database: TestDatabase,
  refusals: readonly Refusal[],
): Promise<void> {
  await Promise.all(
    refusals.map(([args, code, says]) => expectRefused(database, args, { code, says })),
  );
}
