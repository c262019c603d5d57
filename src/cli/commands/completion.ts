import type { Command } from "commander";
import { type Shell, scriptFor } from "../completion/scripts.ts";
import { placesOf } from "../completion/tree.ts";
import { printRaw } from "../output.ts";

/** `tidemill completion`. Needs no database. */
export function printCompletion(shell: Shell, program: Command): void {
  printRaw(scriptFor(shell, placesOf(program)));
}
