import { type ChildProcessWithoutNullStreams, execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { copyFileSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { isAbsolute, join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const HERE = fileURLToPath(new URL(".", import.meta.url));
const CODEQ = "github.com/osvaldoandrade/codeq";
const run = promisify(execFile);

/**
 * What to use instead of the model of CodeQ's module: a version of it, such as "latest", or the
 * absolute path of a directory that has it.
 */
const ACTUAL = process.env["TIDEMILL_COMPAT_CODEQ"];

/** For the names of suites: what they ran on must be seen in their output. */
export const CLIENTS = clientsOf(ACTUAL);

function clientsOf(actual: string | undefined): string {
  if (actual === undefined) return "the model of CodeQ's clients";
  return `CodeQ's clients, ${isAbsolute(actual) ? "from a directory" : actual}`;
}

export const BUILD_MS_MAX = 600_000; // Go compiles all of gRPC the first time.

export type ProgramName = "worker" | "producer" | "transcode";

/** One line that a program printed. */
export type Line = Readonly<Record<string, unknown>>;

/** Why the programs cannot be built here, or undefined. */
export async function missingGo(): Promise<string | undefined> {
  try {
    await run("go", ["version"]);
    return undefined;
  } catch {
    return "Go is not installed";
  }
}

/** The Go programs of this folder, built into a folder that `close` removes. */
export class GoPrograms {
  readonly #folder: string;

  private constructor(folder: string) {
    this.#folder = folder;
  }

  static async build(...names: ProgramName[]): Promise<GoPrograms> {
    const folder = mkdtempSync(join(tmpdir(), "tidemill-codeq-"));
    const programs = new GoPrograms(folder);
    try {
      const flags = ACTUAL === undefined ? [] : await useModule(folder, ACTUAL);
      await go("build", ...flags, "-o", `${folder}/`, ...names.map((name) => `./cmd/${name}`));
    } catch (error) {
      programs.close();
      throw error;
    }
    return programs;
  }

  start(name: ProgramName, flags: Readonly<Record<string, string | number>> = {}): GoProgram {
    const list = Object.entries(flags).map(([flag, value]) => `-${flag}=${value}`);
    return new GoProgram(spawn(join(this.#folder, name), list));
  }

  close(): void {
    rmSync(this.#folder, { recursive: true, force: true });
  }
}

/** One running program. Whoever starts it closes its input, and so ends it. */
export class GoProgram {
  readonly lines: Line[] = [];
  /** What it logged. */
  log = "";
  readonly #child: ChildProcessWithoutNullStreams;
  readonly #ended: Promise<unknown>;

  constructor(child: ChildProcessWithoutNullStreams) {
    this.#child = child;
    child.stderr.setEncoding("utf8").on("data", (text: string) => {
      this.log += text;
    });
    const reader = createInterface({ input: child.stdout });
    reader.on("line", (text) => this.lines.push(JSON.parse(text) as Line));
    this.#ended = Promise.all([once(child, "close"), once(reader, "close")]);
  }

  write(lines: readonly Line[]): void {
    this.#child.stdin.write(lines.map((line) => `${JSON.stringify(line)}\n`).join(""));
  }

  of(event: string): Line[] {
    return this.lines.filter((line) => line["event"] === event);
  }

  /** Closes its input and gives its exit code. */
  async stop(): Promise<number | null> {
    this.#child.stdin.end();
    return await this.end();
  }

  /** Waits until it ends by itself. */
  async end(): Promise<number | null> {
    await this.#ended;
    return this.#child.exitCode;
  }

  kill(): void {
    this.#child.kill("SIGKILL");
  }
}

/** Flags for a build on the real module: the go.mod beside the programs stays as it is. */
async function useModule(folder: string, actual: string): Promise<string[]> {
  const file = join(folder, "go.mod");
  copyFileSync(join(HERE, "go.mod"), file);
  copyFileSync(join(HERE, "go.sum"), join(folder, "go.sum"));
  if (isAbsolute(actual)) {
    await go("mod", "edit", `-replace=${CODEQ}=${actual}`, file);
    await go("mod", "tidy", `-modfile=${file}`);
  } else {
    await go("mod", "edit", `-dropreplace=${CODEQ}`, `-droprequire=${CODEQ}`, file);
    await go("get", `-modfile=${file}`, `${CODEQ}@${actual}`);
  }
  return [`-modfile=${file}`, "-mod=mod"];
}

async function go(...words: string[]): Promise<void> {
  try {
    await run("go", words, { cwd: HERE });
  } catch (error) {
    const { stderr = "" } = error as { stderr?: string };
    throw new Error(`go ${words.join(" ")}: ${stderr}`, { cause: error });
  }
}
