import { join } from "node:path";
import fc from "fast-check";

const { TIDEMILL_TEST_SEED: seedGiven, TIDEMILL_TEST_SECONDS: secondsGiven } = process.env;
/** Another one each time, unless one is asked for; in CI always the same: a change is judged. */
const SEED = Number(seedGiven ?? (process.env["CI"] === "true" ? 1 : Date.now() % 2 ** 31));
const RUNS_MAX = 1_000_000;
const MARGIN_MS = 60_000;

export interface ModelTest {
  /** As seen from here. */
  readonly file: string;
  readonly runs: number;
  /** A slow machine makes fewer runs instead of a longer test. */
  readonly seconds: number;
}

const secondsOf = ({ seconds }: ModelTest): number => Number(secondsGiven ?? seconds);

/** For the test's own limit, beyond which something hangs. */
export const timeoutOf = (test: ModelTest): number => secondsOf(test) * 1_000 + MARGIN_MS;

/** Fails with the fewest commands found that show the fault, and tells how to see it again. */
export async function assertModel<T>(
  property: fc.IAsyncProperty<T>,
  test: ModelTest,
): Promise<void> {
  const found = await fc.check(property, {
    seed: SEED,
    numRuns: secondsGiven === undefined ? test.runs : RUNS_MAX,
    interruptAfterTimeLimit: secondsOf(test) * 1_000,
  });
  if (secondsGiven !== undefined) console.log(`${found.numRuns} runs of ${test.file}`);
  if (found.counterexample === null) return; // Also when the time was up first.
  const report = (await fc.asyncDefaultReportMessage(found)) ?? "";
  const settings = `TIDEMILL_TEST_SEED=${SEED} TIDEMILL_TEST_SECONDS=300`;
  const replay = `${settings} npx vitest run ${join("test/model", test.file)}`;
  throw new Error(`see it again with: ${replay}\n${report}`, { cause: found.errorInstance });
}
