import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { onCleanup } from "./database.ts";
import { program } from "./programs.ts";
import type { WorkerProcessSpec } from "./worker-process.ts";

export interface WorkerProcess {
  /** Of the worker that runs in it. */
  readonly id: string;
  kill(signal: "SIGKILL" | "SIGTERM" | "SIGSTOP" | "SIGCONT" | "SIGUSR2"): void;
  /** What it has said until now. */
  readonly said: readonly string[];
  /** Resolves with the exit code, `null` after a signal, and all that it said. */
  readonly ended: Promise<{ readonly code: number | null; readonly said: readonly string[] }>;
}

const PROGRAM = program("test/support/worker-process.ts");

/** Starts a worker in a process of its own; it is killed when the test is over. */
export async function startWorkerProcess(spec: WorkerProcessSpec): Promise<WorkerProcess> {
  const child = spawn(process.execPath, [PROGRAM, JSON.stringify(spec)], {
    stdio: ["ignore", "pipe", "pipe"],
  });
  const exited = once(child, "close") as Promise<[number | null]>;
  onCleanup(async () => {
    child.kill("SIGKILL");
    await exited;
  });
  let complaint = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    complaint = (complaint + text).slice(-4_000);
  });
  const said: string[] = [];
  const lines = createInterface({ input: child.stdout });
  const started = new Promise<string>((resolve) => {
    lines.on("line", (line) => {
      const { event, id } = JSON.parse(line) as { event: string; id?: string };
      said.push(event);
      if (event === "starting" && id !== undefined) resolve(id);
    });
  });
  const died = exited.then(([code]): never => {
    throw new Error(`the worker process ended with ${code}: ${complaint}`);
  });
  died.catch(() => {}); // Only matters before it has started.
  const id = await Promise.race([started, died]);
  return {
    id,
    kill: (signal) => void child.kill(signal),
    said,
    ended: exited.then(([code]) => ({ code, said })),
  };
}
