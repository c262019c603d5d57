import { type Command, CommanderError } from "commander";
import { describeError, describeStack, EXIT_USAGE, exitCodeOf, oneLine } from "./errors.ts";
import { withNextStep } from "./next-step.ts";
import { print, printError } from "./output.ts";
import { buildProgram } from "./program.ts";

/** Runs what was typed after the name of the program, and returns the exit code. */
export async function runCommandLine(args: readonly string[]): Promise<number> {
  let complaint = "";
  const program = buildProgram((text) => {
    complaint += text;
  });
  try {
    await program.parseAsync([...args], { from: "user" });
    return Number(process.exitCode ?? 0);
  } catch (error) {
    if (error instanceof CommanderError) return explainUsage(error, { complaint, program, args });
    const isDebugging = program.opts()["debug"] === true || Boolean(process.env["TIDEMILL_DEBUG"]);
    printError(`tidemill: ${isDebugging ? describeStack(error) : describeError(error)}`);
    return exitCodeOf(error);
  }
}

interface Typed {
  /** What commander would have printed. */
  readonly complaint: string;
  readonly program: Command;
  readonly args: readonly string[];
}

function explainUsage(error: CommanderError, { complaint, program, args }: Typed): number {
  if (error.exitCode === 0) return 0;
  if (error.code === "commander.help") {
    print(complaint.trimEnd()); // No command was named: the help is the answer.
    return 0;
  }
  const said = oneLine(error.message).replace(/^error: /, "");
  printError(`tidemill: ${withNextStep(said, { code: error.code, program, args })}`);
  return EXIT_USAGE;
}
