import { expect } from "vitest";
import type { TestDatabase } from "../../support/database.ts";
import { runCli, tableCounts } from "./cli.ts";

/** The exit code, what the line says, and another address than that of the database. */
export type Refusal = [args: string[], code: 1 | 2, says: RegExp, url?: string | undefined];

/** Each is one line that says what to do, with the right exit code; and nothing is written. */
export async function expectAllRefused(
  database: TestDatabase,
  refusals: readonly Refusal[],
): Promise<void> {
  const before = await tableCounts(database.pool);
  await Promise.all(
    refusals.map(async ([args, expected, says, url = database.url]) => {
      const { code, stdout, stderr } = await runCli(args, { env: { DATABASE_URL: url } });
      expect(stderr).toMatch(/^tidemill: [^\n]+\n$/);
      expect(stderr).toMatch(says);
      expect({ code, stdout }).toEqual({ code: expected, stdout: "" });
    }),
  );
  expect(await tableCounts(database.pool)).toEqual(before);
}

export async function expectRefused(
  database: TestDatabase,
  args: readonly string[],
  { code, says, url }: { readonly code: 1 | 2; readonly says: RegExp; readonly url?: string },
): Promise<void> {
  await expectAllRefused(database, [[[...args], code, says, url]]);
}
