import { type Figure, printFigure } from "../bench/support/figure.ts";
import { VERSION } from "../src/index.ts";
import type { Outcome } from "./run.ts";

/** One line per mutant, and how many there were. */
export function report(outcomes: readonly Outcome[], json: boolean): void {
  const settings = { tidemill: VERSION, node: process.versions.node };
  for (const outcome of outcomes) {
    if (json) printFigure(figureOf(outcome, settings), true);
    else process.stdout.write(`${rowOf(outcome)}\n`);
  }
  const count = (kind: Outcome["kind"]): number =>
    outcomes.filter((outcome) => outcome.kind === kind).length;
  const totals = {
    total: outcomes.length,
    survived: count("survived"),
    unknown: count("unknown"),
  };
  for (const [name, value] of Object.entries(totals)) {
    printFigure({ figure: `mutants.${name}`, value, unit: "mutants", settings }, json);
  }
}

type MutantFigure = Figure & {
  readonly mutant: string;
  readonly by: string | null;
  readonly seed: number | null;
  readonly seconds: number;
};

function figureOf(outcome: Outcome, settings: Figure["settings"]): MutantFigure {
  const { mutant, kind, by, command, seed, seconds } = outcome;
  return {
    figure: "mutants.caught",
    mutant,
    value: kind === "caught" ? 1 : 0,
    by,
    seed,
    seconds: Math.round(seconds),
    unit: "mutants",
    settings: { ...settings, command },
  };
}

function rowOf({ mutant, kind, by, command, seed, seconds }: Outcome): string {
  const what = kind === "caught" ? `${by} (${command?.split(" ").slice(0, 3).join(" ")})` : kind;
  const [name, seedText] = [mutant.padEnd(32), String(seed ?? "").padStart(4)];
  return `${name} ${seedText} ${String(Math.round(seconds)).padStart(4)} s  ${what}`;
}
