import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const MAIN = fileURLToPath(new URL("../../../src/cli/main.ts", import.meta.url));
const TSX = import.meta.resolve("tsx");
const run = promisify(execFile);

/** Runs what must succeed with something to read on standard input, and returns its output. */
export async function pipedCli(url: string, input: string, ...args: string[]): Promise<string> {
  const running = run(process.execPath, ["--import", TSX, MAIN, ...args], {
    env: { ...process.env, DATABASE_URL: url, TIDEMILL_DEBUG: "" },
  });
  running.child.stdin?.end(input);
  return (await running).stdout;
}
