import { CommanderError } from "commander";
import { expect, it } from "vitest";
import { withNextStep } from "./next-step.ts";
import { buildProgram } from "./program.ts";

/** What is said of a command line that is refused. */
async function said(...args: string[]): Promise<string> {
  const program = buildProgram(() => {});
  try {
    await program.parseAsync(["node", "tidemill", ...args]);
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error;
    const message = error.message.replace(/\s*\n\s*/g, " ").replace(/^error: /, "");
    return withNextStep(message, { code: error.code, program, args });
  }
  throw new Error("it was not refused");
}

it.each<[args: string, says: string]>([
  [
    "statsu",
    `unknown command 'statsu'; did you mean "tidemill status"? "tidemill --help" lists all`,
  ],
  [
    "queue puase receipts",
    `unknown command 'puase'; did you mean "tidemill queue pause"? ` +
      `"tidemill queue --help" lists all`,
  ],
  [
    "redrive 7",
    `unknown command 'redrive'; did you mean "tidemill dead redrive"? "tidemill --help" lists all`,
  ],
  ["frobnicate", `unknown command 'frobnicate'; "tidemill --help" lists all`],
  [
    "status --jsno",
    `unknown option '--jsno' (Did you mean --json?) "tidemill status --help" shows how`,
  ],
  ["queue pause", `missing required argument 'name'; "tidemill queue pause --help" shows how`],
  [
    "status now",
    `too many arguments for 'status'. Expected 0 arguments but got 1. ` +
      `"tidemill status --help" shows how`,
  ],
  [
    "completion powershell",
    `command-argument value 'powershell' is invalid for argument 'shell'. Allowed choices are ` +
      `bash, zsh, fish. "tidemill completion --help" shows how`,
  ],
])("tidemill %s", async (args, says) => {
  expect(await said(...args.split(" "))).toBe(says);
});
