import { expect, it } from "vitest";
import { testDatabase } from "../../support/database.ts";
import { runStress } from "../../support/stress.ts";

const SEED = Number(process.env["TIDEMILL_TEST_SEED"] ?? 7);
const SECONDS = Number(process.env["TIDEMILL_TEST_SECONDS"] ?? 6);

it("handles every event once and in order under slow, concurrent and undone appends", async () => {
  const { url } = await testDatabase();
  const result = await runStress({ url, seed: SEED, seconds: SECONDS });
  const shown = `TIDEMILL_TEST_SEED=${SEED}: ${JSON.stringify(result)}`;
  if (process.env["TIDEMILL_TEST_SECONDS"]) console.log(shown);
  expect(result, shown).toMatchObject({ lost: 0, repeated: 0, reordered: 0, torn: 0, unknown: 0 });
  expect(result.handled, shown).toBe(2 * result.appended);
  expect(result.appended, shown).toBeGreaterThan(50 * SECONDS);
  expect(result.holes, shown).toBeGreaterThan(10 * SECONDS);
  // The bound is that of the fault matrix: a fence waits for every open transaction, not only for
  // those below.
  expect(result.gapDelayP99Ms, shown).toBeLessThanOrEqual(result.longestAppendMs + 250);
});
