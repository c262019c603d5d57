import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { onCleanup } from "../../support/database.ts";
import type { JobProcessSpec } from "../../support/job-process.ts";
import type { JobTargetSpec } from "../../support/job-target.ts";
import { type Program as ProgramSource, program } from "../../support/programs.ts";

export interface Program {
  /** What it said when it had started. */
  readonly said: Readonly<Record<string, unknown>>;
  /** Sends the signal, and resolves with the exit code: `null` after a signal that it obeyed. */
  end(signal: "SIGTERM" | "SIGKILL"): Promise<number | null>;
  /** What it complained of. */
  readonly complaint: () => string;
}

export const startTarget = (spec: JobTargetSpec): Promise<Program> =>
  start("test/support/job-target.ts", spec);

export const startJobs = (spec: JobProcessSpec): Promise<Program> =>
  start("test/support/job-process.ts", spec);

/** Resolves when it has said its first line. It is killed when the test is over. */
async function start(source: ProgramSource, spec: object): Promise<Program> {
  const child: ChildProcess = spawn(process.execPath, [program(source), JSON.stringify(spec)], {
    stdio: ["ignore", "pipe", "pipe"],
  });
  if (child.stdout === null) throw new Error("the program cannot be heard");
  let complaint = "";
  child.stderr?.setEncoding("utf8").on("data", (text: string) => {
    complaint = (complaint + text).slice(-8_000);
  });
  const ended = once(child, "close") as Promise<[number | null]>;
  const end: Program["end"] = async (signal) => {
    child.kill(signal);
    return (await ended)[0];
  };
  onCleanup(() => end("SIGKILL"));
  const died = ended.then(([code]): never => {
    throw new Error(`${source} ended with ${code}: ${complaint}`);
  });
  died.catch(() => {}); // Only matters before it has started.
  const line = once(createInterface({ input: child.stdout }), "line") as Promise<[string]>;
  const [said] = await Promise.race([line, died]);
  return { said: JSON.parse(said) as Program["said"], end, complaint: () => complaint };
}
