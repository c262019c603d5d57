import { spawn } from "node:child_process";
import { once } from "node:events";
import { appendFileSync, existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { bringIn, type Target, targetsOf } from "./targets.ts";

const USAGE = "npm run test:postgres -- [14] [16] [17] [/path/of/an/installation]";

const FOLDERS = ["test/integration", "test/contract", "test/model"];
/** Where the server does not matter. */
const ELSEWHERE = [
  "adapters",
  "cli",
  "client",
  "docs",
  "embedded",
  "package",
  "pgbouncer",
  "server", // Streams and HTTP on the statements that others test.
  "testing",
  "wire",
];

interface Outcome {
  readonly passed: number;
  readonly failed: number;
  readonly skipped: number;
}

const vitest = join(createRequire(import.meta.url).resolve("vitest/package.json"), "../vitest.mjs");

/** Runs the tests in a process of their own, on a server that they start themselves. */
async function runOn({ installation }: Target): Promise<Outcome> {
  const folder = mkdtempSync(join(tmpdir(), "tidemill-versions-"));
  const tally = join(folder, "tally");
  const { DATABASE_URL: _, ...env } = process.env;
  const excluded = ELSEWHERE.map((name) => `--exclude=test/integration/${name}/**`);
  try {
    const child = spawn(process.execPath, [vitest, "run", ...FOLDERS, ...excluded], {
      stdio: "inherit",
      env: { ...env, TIDEMILL_TEST_POSTGRES: installation, TIDEMILL_TEST_TALLY: tally },
    });
    const [code] = (await once(child, "exit")) as [number | null];
    return readOutcome(tally, code);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

function readOutcome(tally: string, code: number | null): Outcome {
  const line = existsSync(tally) ? readFileSync(tally, "utf8") : "0 0 0\n";
  const sum = process.env["TIDEMILL_TEST_TALLY"];
  if (sum) appendFileSync(sum, line);
  const [passed = 0, failed = 0, skipped = 0] = line.split(" ").map(Number);
  // A run may fail without a test that failed: it was skipped in CI, or nothing was run at all.
  return { passed, failed: code === 0 ? failed : Math.max(failed, 1), skipped };
}

async function main(): Promise<void> {
  const targets = targetsOf(process.argv.slice(2));
  bringIn(targets);
  const lines: string[] = [];
  for (const target of targets) {
    const startedMs = performance.now();
    const { passed, failed, skipped } = await runOn(target);
    const seconds = Math.round((performance.now() - startedMs) / 1000);
    lines.push(
      `PostgreSQL ${target.name}: ${passed} passed, ${failed} failed, ${skipped} skipped ` +
        `in ${seconds} s`,
    );
    if (failed > 0) process.exitCode = 1;
  }
  process.stdout.write(`${lines.join("\n")}\n`);
}

try {
  await main();
} catch (error) {
  process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n${USAGE}\n`);
  process.exitCode = 2;
}
