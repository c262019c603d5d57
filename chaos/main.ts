import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { buildPrograms } from "../test/support/programs.ts";
import { check } from "./checker/check.ts";
import type { Fault } from "./faults/fault.ts";
import { FAULTS } from "./faults/index.ts";
import { readHistories } from "./history.ts";
import { report } from "./report.ts";
import { run } from "./run.ts";
import { writeTruth } from "./truth.ts";

const USAGE = "npm run chaos -- [--seconds N] [--seed N] [--faults a,b] [--json]";

interface Options {
  readonly seconds: number;
  readonly seed: number;
  readonly faults: readonly Fault[];
  readonly json: boolean;
}

function readOptions(): Options {
  const { values } = parseArgs({
    options: {
      seconds: { type: "string", default: "60" },
      seed: { type: "string", default: "1" },
      faults: { type: "string" },
      json: { type: "boolean", default: false },
    },
  });
  return {
    seconds: wholeNumber("seconds", values.seconds),
    seed: wholeNumber("seed", values.seed),
    faults: values.faults === undefined ? possible() : values.faults.split(",").map(asked),
    json: values.json,
  };
}

function wholeNumber(name: string, text: string): number {
  if (!/^\d{1,9}$/.test(text)) throw new Error(`--${name} must be a whole number, not "${text}"`);
  return Number(text);
}

function faultOf(kind: string): Fault {
  const fault = FAULTS.find((one) => one.kind === kind);
  if (fault !== undefined) return fault;
  throw new Error(`no fault "${kind}"; there are ${FAULTS.map((one) => one.kind).join(", ")}`);
}

/** One that cannot be done here would end the run when its turn comes. */
function asked(kind: string): Fault {
  const fault = faultOf(kind);
  const reason = fault.whyNot?.();
  if (reason !== undefined) throw new Error(`cannot do ${kind}: ${reason}`);
  return fault;
}

/** What this machine lacks the tools for is named, and is a failure where all must be there. */
function possible(): Fault[] {
  return FAULTS.filter(({ kind, whyNot }) => {
    const reason = whyNot?.();
    if (reason === undefined) return true;
    if (process.env["CI"] === "true") throw new Error(`cannot do ${kind}: ${reason}`);
    process.stderr.write(`left out ${kind}: ${reason}\n`);
    return false;
  });
}

function sayReplay({ seconds, seed, faults }: Options): void {
  const isAll = faults.length === FAULTS.length;
  const only = isAll ? "" : ` --faults ${faults.map((one) => one.kind).join(",")}`;
  say(`replay: npm run chaos -- --seconds ${seconds} --seed ${seed}${only}`);
}

function say(line: string): void {
  process.stderr.write(`${line}\n`);
}

async function main({ seconds, seed, faults, json }: Options): Promise<boolean> {
  for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, () => process.exit(130));
  await buildPrograms();
  const folder = mkdtempSync(join(tmpdir(), "tidemill-chaos-"));
  say(`seed ${seed}, ${seconds} s, ${faults.length} kinds of faults, histories in ${folder}`);
  const truth = await run({ seconds, seed, faults, folder, say });
  writeTruth(join(folder, "truth"), truth);
  const verdict = check(readHistories(folder), truth);
  report(verdict, { seed, seconds, json });
  return verdict.violations.length === 0;
}

const messageOf = (error: unknown): string =>
  error instanceof Error ? error.message : String(error);

try {
  const options = readOptions();
  try {
    if (!(await main(options))) {
      sayReplay(options);
      process.exitCode = 1;
    }
  } catch (error) {
    say(error instanceof Error ? (error.stack ?? error.message) : String(error));
    sayReplay(options);
    process.exit(2); // Whatever the run that failed has left behind must not go on.
  }
} catch (error) {
  say(`${messageOf(error)}\n${USAGE}`);
  process.exit(2);
}
