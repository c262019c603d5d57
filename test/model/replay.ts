import { join } from "node:path";
import fc from "fast-check";

const { TIDEMILL_TEST_SEED: seedGiven, TIDEMILL_TEST_SECONDS: secondsGiven } = process.env;
const FIXED = 1;
/** The one that is asked for, or a fixed and a new one; in CI no new one: a change is judged. */
function seedsOf(): number[] {
  if (seedGiven !== undefined) return [Number(seedGiven)];
  return process.env["CI"] === "true" ? [FIXED] : [FIXED, Date.now() % 2 ** 31];
}
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

/** Seeds share the runs and the time. */
export async function assertModel<T>(
  property: fc.IAsyncProperty<T>,
  test: ModelTest,
): Promise<void> {
  const seeds = seedsOf();
  for (const seed of seeds) await assertSeed(property, test, { seed, share: 1 / seeds.length });
}

/** Fails with the fewest commands found that show the fault, and tells how to see it again. */
async function assertSeed<T>(
  property: fc.IAsyncProperty<T>,
  test: ModelTest,
  { seed, share }: { readonly seed: number; readonly share: number },
): Promise<void> {
  const found = await fc.check(property, {
    seed,
    numRuns: secondsGiven === undefined ? Math.ceil(test.runs * share) : RUNS_MAX,
    interruptAfterTimeLimit: secondsOf(test) * 1_000 * share,
  });
  if (secondsGiven !== undefined) console.log(`${found.numRuns} runs of ${test.file}`);
  if (found.counterexample === null) return; // Also when the time was up first.
  const report = (await fc.asyncDefaultReportMessage(found)) ?? "";
  const settings = `TIDEMILL_TEST_SEED=${seed} TIDEMILL_TEST_SECONDS=300`;
  const replay = `${settings} npx vitest run ${join("test/model", test.file)}`;
  throw new Error(`see it again with: ${replay}\n${report}`, { cause: found.errorInstance });
}
