import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, existsSync, openSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Blocked, Exited } from "../src/checker/history.ts";
import { type Program, program } from "../test/support/programs.ts";
import { Proxy } from "./proxy.ts";
import { STOP_MS } from "./scene.ts";

/** What a process is told when it starts. */
export interface ProcessSpec {
  readonly url: string;
  /** Where its history goes, and what it complains of. */
  readonly folder: string;
  readonly name: string;
  readonly seed: number;
  /** Whether a pooler is before the database. */
  readonly isPooled: boolean;
  /** Whether it tries to lead more often than others do, and so before them. */
  readonly isEager?: boolean;
  /** Of a process that has no database: where the servers are. */
  readonly servers?: readonly string[];
}

export interface ProcessOptions extends ProcessSpec {
  /** How its clock is wrong, as faketime is told: `+45` seconds, or `+0 x5`. */
  readonly clock?: string;
}

/** What a process says when it has begun. */
interface Begun {
  /** Of the worker in it; null where there is none. */
  readonly worker: string | null;
  /** Of a server. */
  readonly ports?: Readonly<Record<"producer" | "worker", number>>;
}

/** What a process says when a task is about to keep it from everything else. */
export interface Blocking {
  readonly blocksMs: number;
}

/** What is told of a process that does not write it down itself. */
export type Told = Exited | Blocked;

/** Who has not begun or ended after so long never will, and is killed: that breaks a rule. */
const START_MS_MAX = 60_000;
const STOP_MS_MAX = 30_000;

/** A process of the run, with a proxy of its own before the database. */
export class ChaosProcess implements AsyncDisposable {
  readonly name: string;
  readonly proxy: Proxy;
  /** Resolves when it is gone, and that is told. */
  readonly exited: Promise<void>;
  readonly #child: ChildProcess;
  readonly #clockFile: string;
  #begun: Begun | undefined;
  #asked: Exited["asked"] = null;
  #stoppingSinceMs: number | undefined;
  isPaused = false;
  isGone = false;

  private constructor(
    spec: ProcessSpec,
    proxy: Proxy,
    child: ChildProcess,
    tell: (what: Told) => void,
  ) {
    const { folder, name } = spec;
    this.#clockFile = clockFileOf(spec);
    this.name = name;
    this.proxy = proxy;
    this.#child = child;
    child.on("message", (said: Begun | Blocking) => {
      if (!("blocksMs" in said)) return;
      const fromMs = Date.now();
      tell({ op: "block", process: name, fromMs, toMs: fromMs + said.blocksMs });
    });
    this.exited = exitOf(child).then(([code, signal]) => {
      this.isGone = true;
      const sinceMs = this.#stoppingSinceMs;
      const stopMs = sinceMs === undefined ? null : Math.round(performance.now() - sinceMs);
      const asked = this.#asked;
      const isQuiet = asked === "kill" || (code === 0 && (stopMs ?? 0) <= STOP_MS);
      const lastLines = isQuiet ? [] : lastLinesOf(logOf(folder, name));
      const { workerId: worker } = this;
      tell({ op: "exit", process: name, worker, code, signal, asked, stopMs, lastLines });
    });
  }

  /** Rejects when it ends before it has begun. */
  static async start(
    source: Program,
    { clock, ...given }: ProcessOptions,
    tell: (what: Told) => void,
  ): Promise<ChaosProcess> {
    const proxy = await Proxy.open(given.url);
    const spec: ProcessSpec = { ...given, url: proxy.url };
    const log = openSync(logOf(spec.folder, spec.name), "a");
    const child = spawn(process.execPath, [program(source), JSON.stringify(spec)], {
      stdio: ["ignore", log, log, "ipc"],
      env: { ...process.env, ...(clock === undefined ? {} : fakeClock(spec, clock)) },
    });
    closeSync(log);
    const said = once(child, "message") as Promise<[Begun]>;
    const started = new ChaosProcess(spec, proxy, child, tell);
    const ended = started.exited.then(() => undefined);
    const late = setTimeout(() => child.kill("SIGKILL"), START_MS_MAX);
    const [begun] = (await Promise.race([said, ended])) ?? [];
    clearTimeout(late);
    if (begun !== undefined) {
      started.#begun = begun;
      return started;
    }
    await proxy[Symbol.asyncDispose]();
    throw new Error(`${spec.name} ended before it began: see ${logOf(spec.folder, spec.name)}`);
  }

  /** Of the worker in it; null where there is none. */
  get workerId(): string | null {
    return this.#begun?.worker ?? null;
  }

  /** Where a server listens. */
  get ports(): Readonly<Record<"producer" | "worker", number>> {
    const ports = this.#begun?.ports;
    if (ports === undefined) throw new Error(`${this.name} is no server`);
    return ports;
  }

  kill(): void {
    this.#tell("kill", "SIGKILL");
  }

  /** Of one that was started with a wrong clock: it is wrong in this way within a second. */
  setClock(clock: string): void {
    writeFileSync(this.#clockFile, clock);
  }

  pause(): void {
    this.isPaused = true;
    this.#child.kill("SIGSTOP");
  }

  resume(): void {
    this.isPaused = false;
    this.#child.kill("SIGCONT");
  }

  /** Asks it to end in peace. One that does not listen must not hold up the run. */
  async stop(): Promise<void> {
    this.#stoppingSinceMs ??= performance.now();
    this.#tell("stop", "SIGTERM");
    const late = setTimeout(() => this.#child.kill("SIGKILL"), STOP_MS_MAX);
    await this.exited;
    clearTimeout(late);
  }

  /** What ended before it was told to is not excused by it. */
  #tell(what: "kill" | "stop", signal: NodeJS.Signals): void {
    if (!this.isGone) this.#asked = what;
    this.#child.kill(signal);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.kill();
    await this.exited;
    await this.proxy[Symbol.asyncDispose]();
  }
}

type Exit = [code: number | null, signal: NodeJS.Signals | null];

async function exitOf(child: ChildProcess): Promise<Exit> {
  return (await once(child, "exit")) as Exit;
}

/** What it says of itself, beside its history. */
const logOf = (folder: string, name: string): string => join(folder, `${name}.log`);

const LINES_MAX = 20;

function lastLinesOf(file: string): string[] {
  return readFileSync(file, "utf8").trimEnd().split("\n").slice(-LINES_MAX);
}

const FAKETIME = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1";

/** Why no process can have a wrong clock on this machine. */
export function whyNoFakeClock(): string | undefined {
  return existsSync(FAKETIME) ? undefined : "faketime is not installed";
}

/** The time of day is off; what is measured with is not, as on a real machine. */
function fakeClock(spec: ProcessSpec, clock: string): NodeJS.ProcessEnv {
  const file = clockFileOf(spec);
  writeFileSync(file, clock);
  return {
    LD_PRELOAD: FAKETIME,
    FAKETIME_TIMESTAMP_FILE: file,
    FAKETIME_CACHE_DURATION: "1",
    DONT_FAKE_MONOTONIC: "1",
  };
}

const clockFileOf = ({ folder, name }: ProcessSpec): string => join(folder, `${name}.clock`);
