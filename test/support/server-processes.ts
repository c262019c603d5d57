import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import type { ServerOptions } from "../../src/server/index.ts";
import { onCleanup } from "./database.ts";
import { program } from "./programs.ts";
import type { ServerProcessSpec } from "./server-process.ts";

export interface ServerProcess {
  readonly producer: string;
  readonly worker: string;
  readonly http: string;
  /** Ends it without a word. */
  kill(): Promise<void>;
  /** Lets it drain and go. */
  stop(): Promise<void>;
}

const PROGRAM = program("test/support/server-process.ts");

/** Starts a server in a process of its own; it is killed when the test is over. */
export async function startServerProcess(
  url: string,
  options: ServerOptions,
): Promise<ServerProcess> {
  const spec: ServerProcessSpec = { url, options };
  const child = spawn(process.execPath, [PROGRAM, JSON.stringify(spec)], {
    stdio: ["pipe", "pipe", "pipe"],
  });
  child.stdin.on("error", () => {}); // It may be gone.
  let complaint = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    complaint = (complaint + text).slice(-4_000);
  });
  const ended = once(child, "close") as Promise<[number | null]>;
  const kill = async (): Promise<void> => {
    child.kill("SIGKILL");
    await ended;
  };
  onCleanup(kill);
  const died = ended.then(([code]): never => {
    throw new Error(`the server ended with ${code}: ${complaint}`);
  });
  died.catch(() => {}); // Only matters before it listens.
  const said = once(createInterface({ input: child.stdout }), "line") as Promise<[string]>;
  const [line] = await Promise.race([said, died]);
  const { ports } = JSON.parse(line) as { ports: Record<"producer" | "worker" | "http", number> };
  return {
    producer: `127.0.0.1:${ports.producer}`,
    worker: `127.0.0.1:${ports.worker}`,
    http: `http://127.0.0.1:${ports.http}`,
    kill,
    stop: async () => {
      child.stdin.write("stop\n");
      await ended;
    },
  };
}
