import { messageOf } from "../../src/base/errors.ts";

const { TIDEMILL_TEST_SEED: seedGiven, TIDEMILL_TEST_SECONDS: secondsGiven } = process.env;

export interface Seeds {
  readonly file: string;
  /** Runs the seeds from 1 on. */
  readonly count: number;
  /** A slow machine runs fewer of them instead of a longer test. */
  readonly seconds: number;
}

/** For the test's own limit, beyond which something hangs. */
export const timeoutOf = ({ seconds }: Seeds): number =>
  Number(secondsGiven ?? seconds) * 1_000 + 60_000;

/**
 * Runs the seed that is asked for, or the fixed ones and another that nobody has seen before; with
 * more time, more of those. In CI only the fixed ones: a change is judged.
 */
export async function runSeeds(
  seeds: Seeds,
  simulate: (seed: number, log: string[]) => Promise<void>,
): Promise<number> {
  if (seedGiven !== undefined) {
    await runSeed(seeds, Number(seedGiven), simulate);
    return 1;
  }
  const until = performance.now() + Number(secondsGiven ?? seeds.seconds) * 1_000;
  const fresh = Date.now() % 2 ** 31;
  if (process.env["CI"] !== "true") {
    console.log(`a seed that is new: ${fresh}`);
    await runSeed(seeds, fresh, simulate);
  }
  let count = 1;
  const isMore = (): boolean => secondsGiven !== undefined || count <= seeds.count;
  for (; isMore() && performance.now() < until; count += 1) {
    const seed = count <= seeds.count ? count : fresh + count;
    await runSeed(seeds, seed, simulate);
  }
  console.log(`${count} seeds of ${seeds.file}`);
  return count;
}

async function runSeed(
  { file }: Seeds,
  seed: number,
  simulate: (seed: number, log: string[]) => Promise<void>,
): Promise<void> {
  const log: string[] = [];
  try {
    await simulate(seed, log);
  } catch (error) {
    const replay = `TIDEMILL_TEST_SEED=${seed} npx vitest run test/sim/${file}`;
    const told = log.slice(-60).join("\n");
    throw new Error(`${messageOf(error)}\nsee it again with: ${replay}\n${told}`, { cause: error });
  }
}
