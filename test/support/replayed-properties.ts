import { relative } from "node:path";
import fc, { type RunDetails } from "fast-check";
import { expect } from "vitest";

/*
 * Run before each file, for every property in it: a failure ends with the command that draws the
 * same values again. Without a seed that is asked for they are new each time, but for CI, where a
 * change is judged.
 */

const { TIDEMILL_TEST_SEED: seedGiven, CI: isCi } = process.env;
const seed = seedGiven === undefined ? (isCi === "true" ? 1 : undefined) : Number(seedGiven);

function tell<T>(found: RunDetails<T>): void {
  if (!found.failed) return;
  const file = relative(process.cwd(), expect.getState().testPath ?? "");
  const replay = `TIDEMILL_TEST_SEED=${found.seed} npx vitest run ${file}`;
  const report = fc.defaultReportMessage(found) ?? "";
  throw new Error(`see it again with: ${replay}\n${report}`, { cause: found.errorInstance });
}

fc.configureGlobal({
  reporter: (found) => tell(found),
  ...(seed === undefined ? {} : { seed }),
});
