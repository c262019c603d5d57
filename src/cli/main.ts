#!/usr/bin/env node
import { CommanderError } from "commander";
import { describeError, describeStack, EXIT_USAGE, exitCodeOf, oneLine } from "./errors.ts";
import { print, printError, tolerateClosedPipe } from "./output.ts";
import { buildProgram } from "./program.ts";

/** Runs one command line and returns the exit code. */
async function main(argv: readonly string[]): Promise<number> {
  let complaint = "";
  const program = buildProgram((text) => {
    complaint += text;
  });
  try {
    await program.parseAsync([...argv]);
    return Number(process.exitCode ?? 0);
  } catch (error) {
    if (error instanceof CommanderError) return explainUsage(error, complaint);
    const isDebugging = program.opts()["debug"] === true || Boolean(process.env["TIDEMILL_DEBUG"]);
    printError(`tidemill: ${isDebugging ? describeStack(error) : describeError(error)}`);
    return exitCodeOf(error);
  }
}

function explainUsage(error: CommanderError, complaint: string): number {
  if (error.exitCode === 0) return 0;
  if (error.code === "commander.help") {
    print(complaint.trimEnd()); // No command was named: the help is the answer.
    return 0;
  }
  printError(`tidemill: ${oneLine(error.message).replace(/^error: /, "")}`);
  return EXIT_USAGE;
}

tolerateClosedPipe();
process.exitCode = await main(process.argv);
