import { parseArgs } from "node:util";
import { MUTANTS } from "./list.ts";
import type { Mutant } from "./mutant.ts";
import { report } from "./report.ts";
import { Control, type Outcome, runMutant } from "./run.ts";

const USAGE = "npm run mutants -- [--only name,name] [--json]";

interface Options {
  readonly mutants: readonly Mutant[];
  readonly json: boolean;
}

function readOptions(): Options {
  const { values } = parseArgs({
    options: { only: { type: "string" }, json: { type: "boolean", default: false } },
  });
  const mutants = values.only === undefined ? MUTANTS : values.only.split(",").map(mutantOf);
  return { mutants, json: values.json };
}

function mutantOf(name: string): Mutant {
  const mutant = MUTANTS.find((one) => one.name === name);
  if (mutant !== undefined) return mutant;
  throw new Error(`no mutant "${name}"; there are ${MUTANTS.map((one) => one.name).join(", ")}`);
}

async function main(): Promise<void> {
  const { mutants, json } = readOptions();
  const say = (line: string): void => {
    process.stderr.write(`${line}\n`);
  };
  const control = new Control(say);
  const outcomes: Outcome[] = [];
  for (const mutant of mutants) outcomes.push(await runMutant(mutant, control, say));
  report(outcomes, json);
  const has = (kind: Outcome["kind"]): boolean => outcomes.some((one) => one.kind === kind);
  if (has("survived")) process.exitCode = 1;
  else if (has("unknown")) process.exitCode = 2;
}

// What was started is ended, and what was copied removed, when this process exits.
for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => process.exit(2));

try {
  await main();
} catch (error) {
  process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n${USAGE}\n`);
  process.exitCode = 2;
}
