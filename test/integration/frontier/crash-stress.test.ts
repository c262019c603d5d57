import { expect, it } from "vitest";
import { onCleanup, testDatabase } from "../../support/database.ts";
import { ownServer } from "../../support/own-server.ts";
import { runStress, spread } from "../../support/stress.ts";

const SEED = Number(process.env["TIDEMILL_TEST_SEED"] ?? 7);
const SECONDS = Number(process.env["TIDEMILL_TEST_SECONDS"] ?? 10);
const CRASHES = 3;

it("handles every acknowledged event once across crashes of the server", async () => {
  const server = await ownServer();
  onCleanup(() => server.remove());
  const { url } = await testDatabase({ server: server.url });
  let crashes = 0;
  const faults = spread(CRASHES, SECONDS, SEED, async () => {
    await server.crash();
    crashes += 1;
    await server.start();
  });
  const result = await runStress({ url, seed: SEED, seconds: SECONDS, faults });
  const shown = `TIDEMILL_TEST_SEED=${SEED}: ${JSON.stringify(result)}`;
  if (process.env["TIDEMILL_TEST_SECONDS"]) console.log(shown);
  expect(crashes).toBe(CRASHES);
  expect(result, shown).toMatchObject({ lost: 0, repeated: 0, reordered: 0, torn: 0 });
  expect(result.handled, shown).toBeGreaterThanOrEqual(2 * result.appended);
  expect(result.appended, shown).toBeGreaterThan(30 * SECONDS); // There was something to lose.
  expect(result.unknown, shown).toBeLessThanOrEqual(10 * CRASHES);
}, 90_000);
