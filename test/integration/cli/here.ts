import { vi } from "vitest";
import { runCommandLine } from "../../../src/cli/command-line.ts";

export interface CliResult {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

type Environment = Readonly<Record<string, string>>;

let last: Promise<unknown> = Promise.resolve();

/**
 * Runs a command in this process, which spares starting one. One after the other, as they share
 * the environment and the output.
 */
export function runHere(args: readonly string[], env: Environment): Promise<CliResult> {
  const ended = last.then(() => runAlone(args, env));
  last = ended.catch(() => {});
  return ended;
}

async function runAlone(args: readonly string[], env: Environment): Promise<CliResult> {
  const said = { stdout: "", stderr: "" };
  const spies = (["stdout", "stderr"] as const).map((name) =>
    vi.spyOn(process[name], "write").mockImplementation((text) => {
      said[name] += String(text);
      return true;
    }),
  );
  const before = { env: process.env, exitCode: process.exitCode };
  process.env = { ...before.env, ...env };
  process.exitCode = undefined;
  try {
    return { code: await runCommandLine(args), ...said };
  } finally {
    process.env = before.env;
    process.exitCode = before.exitCode;
    for (const spy of spies) spy.mockRestore();
  }
}
