import { type Figure, printFigure } from "../bench/support/figure.ts";
import { VERSION } from "../src/index.ts";
import type { Verdict } from "./checker/check.ts";

export interface ReportOptions {
  readonly seed: number;
  readonly seconds: number;
  readonly json: boolean;
}

/** The figures on standard output; what was violated, with the history around it, on the other. */
export function report(verdict: Verdict, { seed, seconds, json }: ReportOptions): void {
  const settings = { seed, seconds, tidemill: VERSION, node: process.versions.node };
  for (const [name, value] of Object.entries(verdict.counts)) {
    printFigure({ figure: `chaos.${name}`, value, unit: name, settings }, json);
  }
  for (const { fault, count, worstMs, boundMs, resumedMs, rerunMs } of verdict.recoveries) {
    const times = `work went on after ${Math.round(resumedMs)}`;
    const heldText =
      rerunMs === null ? "" : `; ${times}, all that was held after ${Math.round(rerunMs)}`;
    const figure: Figure & { readonly fault: string } = {
      figure: json ? "chaos.worst_recovery_ms" : `chaos.worst_recovery_ms ${fault}`,
      fault,
      value: worstMs,
      unit: `ms, ${count} times, allowed ${boundMs}${heldText}`,
      settings: { ...settings, count, boundMs, resumedMs, rerunMs },
    };
    printFigure(figure, json);
  }
  for (const { rule, message, slice } of verdict.violations) {
    process.stderr.write(`\n${rule}: ${message}\n`);
    for (const one of slice) process.stderr.write(`  ${JSON.stringify(one)}\n`);
  }
}
