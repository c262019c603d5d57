import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { program } from "../../support/programs.ts";

const MAIN = program("src/cli/main.ts");
const run = promisify(execFile);

/** Runs what must succeed with something to read on standard input, and returns its output. */
export async function pipedCli(url: string, input: string, ...args: string[]): Promise<string> {
  const running = run(process.execPath, [MAIN, ...args], {
    env: { ...process.env, DATABASE_URL: url, TIDEMILL_DEBUG: "" },
  });
  running.child.stdin?.end(input);
  return (await running).stdout;
}
