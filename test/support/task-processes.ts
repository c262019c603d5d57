import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import type { Writable } from "node:stream";
import { onCleanup } from "./database.ts";
import { eventually } from "./eventually.ts";
import { program } from "./programs.ts";
import type { TaskProcessSpec } from "./task-process.ts";

export interface TaskProcess {
  /** Of its workers. */
  readonly ids: readonly string[];
  kill(signal: "SIGKILL" | "SIGTERM" | "SIGSTOP" | "SIGCONT"): void;
  /** Lets handlers go on that wait for the gate. */
  openGate(): void;
  /** Lets a handler return that blocks its whole process. */
  unblock(): void;
  /** Waits until it says this, and gives what it said. */
  heard(event: string, timeoutMs?: number): Promise<Message>;
  /** All that it said so far. */
  readonly said: readonly Message[];
  /** Resolves with the exit code, `null` after a signal. */
  readonly ended: Promise<number | null>;
}

export interface Message {
  readonly event: string;
  readonly name?: string;
  readonly task?: string;
  readonly generation?: number;
  readonly claimId?: string;
  /** Timers that keep the process alive after everything was closed. */
  readonly timers?: number;
  /** When it was heard, on this process's clock. */
  readonly atMs: number;
}

export type TaskProcessOptions = Pick<TaskProcessSpec, "url" | "queue"> &
  Partial<Omit<TaskProcessSpec, "url" | "queue">>;

/** Everything happens within a second or two, and a busy machine is no death. */
export const QUICK = {
  heartbeatInterval: 200,
  heartbeatTimeout: 1_000,
  rebalanceInterval: 200,
  dispatcherStrategy: "notify",
  leaseSeconds: 2,
} as const;

const PROGRAM = program("test/support/task-process.ts");

/** Starts workers of a queue in a process of their own; it is killed when the test is over. */
export async function startTaskProcess(options: TaskProcessOptions): Promise<TaskProcess> {
  const spec: TaskProcessSpec = {
    queueOptions: {},
    workers: 1,
    isOpen: false,
    ...options,
    options: { ...QUICK, ...options.options },
  };
  const child = spawn(process.execPath, [PROGRAM, JSON.stringify(spec)], {
    stdio: ["pipe", "pipe", "pipe", "pipe"],
  });
  const release = child.stdio[3] as Writable;
  for (const one of [child.stdin, release]) one?.on("error", () => {}); // It may be gone.
  const exited = once(child, "close") as Promise<[number | null]>;
  onCleanup(async () => {
    child.kill("SIGKILL");
    await exited;
  });
  let complaint = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    complaint = (complaint + text).slice(-4_000);
  });
  const said: Message[] = [];
  const lines = createInterface({ input: child.stdout });
  const started = new Promise<readonly string[]>((resolve) => {
    lines.on("line", (line) => {
      const message = JSON.parse(line) as Message & { ids?: readonly string[] };
      said.push({ ...message, atMs: performance.now() });
      if (message.event === "starting") resolve(message.ids ?? []);
    });
  });
  const died = exited.then(([code]): never => {
    throw new Error(`the worker process ended with ${code}: ${complaint}`);
  });
  died.catch(() => {}); // Only matters before it has started.
  const ids = await Promise.race([started, died]);
  return {
    ids,
    said,
    kill: (signal) => void child.kill(signal),
    openGate: () => void child.stdin?.write("open\n"),
    unblock: () => void release.write("."),
    heard: (event, timeoutMs = 25_000) =>
      eventually(
        () => {
          const message = said.find((one) => one.event === event);
          if (message !== undefined) return message;
          throw new Error(`it did not say "${event}" but ${JSON.stringify(said)}: ${complaint}`);
        },
        { timeoutMs, everyMs: 5 },
      ),
    ended: exited.then(([code]) => code),
  };
}
