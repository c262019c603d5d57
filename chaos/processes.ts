import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createWriteStream, existsSync } from "node:fs";
import { join } from "node:path";
import { program } from "../test/support/programs.ts";
import { Proxy } from "./proxy.ts";

/** What a process is told when it starts. */
export interface ProcessSpec {
  readonly url: string;
  /** Where its history goes, and what it complains of. */
  readonly folder: string;
  readonly name: string;
  readonly seed: number;
  /** Whether a pooler is before the database. */
  readonly isPooled: boolean;
  /** Of a process that has no database: where the servers are. */
  readonly servers?: readonly string[];
}

export interface ProcessOptions extends ProcessSpec {
  /** How far its clock is off. */
  readonly clockSeconds?: number;
}

/** What a process says when it has begun. */
interface Begun {
  /** Of the worker in it; null where there is none. */
  readonly worker: string | null;
  /** Of a server. */
  readonly ports?: Readonly<Record<"producer" | "worker", number>>;
}

/** A process of the run, with a proxy of its own before the database. */
export class ChaosProcess implements AsyncDisposable {
  readonly name: string;
  readonly proxy: Proxy;
  readonly #begun: Begun;
  readonly #child: ChildProcess;
  readonly #exited: Promise<number | null>;
  isPaused = false;
  isGone = false;

  private constructor(
    name: string,
    { child, proxy, begun }: { child: ChildProcess; proxy: Proxy; begun: Begun },
  ) {
    this.name = name;
    this.proxy = proxy;
    this.#begun = begun;
    this.#child = child;
    this.#exited = exitOf(child);
    void this.#exited.then(() => {
      this.isGone = true;
    });
  }

  static async start(
    source: string,
    { clockSeconds, ...given }: ProcessOptions,
  ): Promise<ChaosProcess> {
    const { folder, name } = given;
    const proxy = await Proxy.open(given.url);
    const spec: ProcessSpec = { ...given, url: proxy.url };
    const child = spawn(process.execPath, [program(source), JSON.stringify(spec)], {
      stdio: ["ignore", "pipe", "pipe", "ipc"],
      env: { ...process.env, ...(clockSeconds === undefined ? {} : fakeClock(clockSeconds)) },
    });
    const log = join(folder, `${name}.log`);
    const complaints = createWriteStream(log);
    child.stdout?.pipe(complaints);
    child.stderr?.pipe(complaints, { end: false });
    const said = once(child, "message") as Promise<[Begun]>;
    const ended = exitOf(child).then((code): never => {
      throw new Error(`${name} ended with ${code} before it began: see ${log}`);
    });
    ended.catch(() => {}); // Only matters before it has begun.
    try {
      const [begun] = await Promise.race([said, ended]);
      return new ChaosProcess(name, { child, proxy, begun });
    } catch (error) {
      await proxy[Symbol.asyncDispose]();
      throw error;
    }
  }

  /** Of the worker in it; null where there is none. */
  get workerId(): string | null {
    return this.#begun.worker;
  }

  /** Where a server listens. */
  get ports(): Readonly<Record<"producer" | "worker", number>> {
    const { ports } = this.#begun;
    if (ports === undefined) throw new Error(`${this.name} is no server`);
    return ports;
  }

  kill(): void {
    this.#child.kill("SIGKILL");
  }

  pause(): void {
    this.isPaused = true;
    this.#child.kill("SIGSTOP");
  }

  resume(): void {
    this.isPaused = false;
    this.#child.kill("SIGCONT");
  }

  /** Asks it to end in peace. */
  async stop(): Promise<number | null> {
    this.#child.kill("SIGTERM");
    return await this.#exited;
  }

  get exited(): Promise<number | null> {
    return this.#exited;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#child.kill("SIGKILL");
    await this.#exited;
    await this.proxy[Symbol.asyncDispose]();
  }
}

async function exitOf(child: ChildProcess): Promise<number | null> {
  if (child.exitCode !== null || child.signalCode !== null) return child.exitCode;
  const [code] = (await once(child, "exit")) as [number | null];
  return code;
}

const FAKETIME = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1";

/** Why no process can have a wrong clock on this machine. */
export function whyNoFakeClock(): string | undefined {
  return existsSync(FAKETIME) ? undefined : "faketime is not installed";
}

/** The time of day is off; what is measured with is not, as on a real machine. */
const fakeClock = (seconds: number): NodeJS.ProcessEnv => ({
  LD_PRELOAD: FAKETIME,
  FAKETIME: `${seconds >= 0 ? "+" : ""}${seconds}`,
  DONT_FAKE_MONOTONIC: "1",
});
