import { spawn } from "node:child_process";
import { readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import type { Catcher, ChaosCatcher, TestCatcher } from "./mutant.ts";
import type { Tree } from "./tree.ts";
import { type Ended, judgeChaos, judgeTests, type TestReport, type Verdict } from "./verdict.ts";

/** One catcher with one seed. */
export interface Trial {
  /** As a person would type it, and the same for the same trial. */
  readonly command: string;
  readonly seed: number | null;
  run(tree: Tree): Promise<Verdict>;
}

/** Beyond what it was told to take: starting, becoming quiet, checking. */
const CHAOS_MARGIN_MS = 240_000;
const TEST_MS_MAX = 300_000;
const GOODBYE_MS = 10_000;
const OUTPUT_KEPT = 1_000_000;

export function trialsOf(catcher: Catcher): Trial[] {
  if (catcher.kind === "chaos") return catcher.seeds.map((seed) => chaosTrial(catcher, seed));
  return (catcher.seeds ?? [null]).map((seed) => testTrial(catcher, seed));
}

function chaosTrial({ seconds, faults, rules }: ChaosCatcher, seed: number): Trial {
  const given = ["--seconds", String(seconds), "--seed", String(seed), "--faults", faults.join()];
  return {
    command: `npm run chaos -- ${given.join(" ")}`,
    seed,
    async run(tree) {
      const args = ["--import", "tsx", "chaos/main.ts", ...given];
      const limitMs = seconds * 1_000 + CHAOS_MARGIN_MS;
      return judgeChaos(await execute(tree, args, {}, limitMs), rules);
    },
  };
}

function testTrial({ file, only, seconds }: TestCatcher, seed: number | null): Trial {
  const env = {
    ...(seed === null ? {} : { TIDEMILL_TEST_SEED: String(seed) }),
    ...(seconds === undefined ? {} : { TIDEMILL_TEST_SECONDS: String(seconds) }),
  };
  const settings = Object.entries(env).map(([name, value]) => `${name}=${value} `);
  const filter = only === undefined ? [] : ["-t", only];
  const quoted = only === undefined ? "" : ` -t ${JSON.stringify(only)}`;
  return {
    command: `${settings.join("")}npx vitest run ${file}${quoted}`,
    seed,
    async run(tree) {
      const report = join(tree.folder, "report.json");
      rmSync(report, { force: true }); // Of the trial before this one.
      const written = ["--reporter=json", `--outputFile=${report}`];
      const args = ["node_modules/vitest/vitest.mjs", "run", file, ...filter, ...written];
      const { stderr } = await execute(tree, args, env, TEST_MS_MAX);
      return judgeTests(readReport(report), stderr);
    },
  };
}

function readReport(path: string): TestReport | undefined {
  try {
    return JSON.parse(readFileSync(path, "utf8")) as TestReport;
  } catch {
    return undefined; // It ended before it could write one.
  }
}

/** Runs Node in the tree. What takes too long is ended, with all that it started. */
async function execute(
  { folder, temporary }: Tree,
  args: readonly string[],
  env: Readonly<Record<string, string>>,
  limitMs: number,
): Promise<Ended> {
  const child = spawn(process.execPath, args, {
    cwd: folder,
    env: { ...process.env, TMPDIR: temporary, ...env },
    stdio: ["ignore", "pipe", "pipe"],
    detached: true,
  });
  let stderr = "";
  const keep = (chunk: Buffer): void => {
    stderr = (stderr + chunk.toString()).slice(-OUTPUT_KEPT);
  };
  child.stderr.on("data", keep);
  child.stdout.on("data", keep);
  const kill = (signal: NodeJS.Signals): void => {
    try {
      if (child.pid !== undefined) process.kill(-child.pid, signal);
    } catch {
      // Nobody is left.
    }
  };
  const killNow = (): void => kill("SIGKILL");
  process.once("exit", killNow);
  const limit = setTimeout(() => kill("SIGTERM"), limitMs);
  const last = setTimeout(killNow, limitMs + GOODBYE_MS);
  try {
    return await new Promise<Ended>((resolve, reject) => {
      child.once("error", reject);
      child.once("close", (code) => resolve({ code, stderr }));
    });
  } finally {
    clearTimeout(limit);
    clearTimeout(last);
    process.removeListener("exit", killNow);
  }
}
