import { type ChildProcess, spawn } from "node:child_process";
import { EventEmitter, once } from "node:events";
import { fileURLToPath } from "node:url";
import type { Program } from "../support/program.ts";
import type { Call, Feed, Handled, OpenOptions, Request, Role, Said, Started } from "./protocol.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const CLOSE_MS_MAX = 60_000;

interface Waiting {
  readonly resolve: (value: number) => void;
  readonly reject: (error: Error) => void;
}

/**
 * A process with one role of one system. It ends with its channel to us, so it cannot outlive us;
 * if it ends by itself, everything that waits for it fails.
 */
export class Child extends EventEmitter<{ handled: [Handled]; started: [Started] }> {
  readonly #process: ChildProcess;
  readonly #waiting = new Map<number, Waiting>();
  readonly #exit: Promise<unknown>;
  #calls = 0;
  #gone: Error | undefined;

  constructor(program: Program) {
    super();
    this.#process = spawn(program.command, program.args, {
      cwd: ROOT,
      // Standard output belongs to the figures.
      stdio: ["ignore", process.stderr, process.stderr, "ipc"],
    });
    this.#process.on("message", (said) => this.#hear(said as Said));
    this.#process.on("error", (error) => this.#fail(error));
    this.#process.on("exit", (code, signal) =>
      this.#fail(new Error(`${program.args.at(-1)} ended with ${signal ?? code}`)),
    );
    this.#exit = once(this.#process, "exit").catch(() => undefined);
  }

  async open(role: Role, options: OpenOptions): Promise<void> {
    await this.call({ do: "open", role, options });
  }

  async call(call: Call): Promise<number> {
    this.#calls += 1;
    const id = this.#calls;
    return await new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject });
      this.#send({ id, call });
    });
  }

  assertAlive(): void {
    if (this.#gone !== undefined) throw this.#gone;
  }

  feed(limit: number): void {
    this.#send({ feed: limit });
  }

  /** Ends its role, and lets it close its connections in peace, but not for ever. */
  async close(): Promise<void> {
    const late = setTimeout(() => this.#process.kill("SIGKILL"), CLOSE_MS_MAX);
    try {
      await this.call({ do: "close" });
      this.removeAllListeners();
    } finally {
      clearTimeout(late);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#process.connected) this.#process.disconnect();
    await this.#exit;
  }

  #send(message: Request | Feed): void {
    if (this.#gone !== undefined) return this.#fail(this.#gone);
    this.#process.send(message, (error) => {
      if (error !== null) this.#fail(error);
    });
  }

  #hear(said: Said): void {
    if ("handled" in said) this.emit("handled", said);
    else if ("started" in said) this.emit("started", said);
    else {
      const waiting = this.#waiting.get(said.id);
      this.#waiting.delete(said.id);
      if (said.error === undefined) waiting?.resolve(said.value ?? Number.NaN);
      else waiting?.reject(new Error(said.error));
    }
  }

  #fail(error: Error): void {
    this.#gone = error;
    for (const { reject } of this.#waiting.values()) reject(error);
    this.#waiting.clear();
  }
}
