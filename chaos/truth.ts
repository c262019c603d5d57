import { appendFileSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import type { Truth } from "../src/checker/truth.ts";

const LINES = 10_000;

/** A file per table, a line per row: for people who look into what a rule found. */
export function writeTruth(folder: string, truth: Truth): void {
  mkdirSync(folder);
  for (const [name, facts] of Object.entries(truth)) {
    if (!Array.isArray(facts)) continue;
    for (let first = 0; first < facts.length; first += LINES) {
      const lines = facts.slice(first, first + LINES).map((fact) => `${JSON.stringify(fact)}\n`);
      appendFileSync(join(folder, `${name}.jsonl`), lines.join(""));
    }
  }
}
