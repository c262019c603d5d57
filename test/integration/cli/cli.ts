import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import type pg from "pg";
import { expect } from "vitest";
import { onCleanup } from "../../support/database.ts";
import { FAST } from "../../support/options.ts";
import { program } from "../../support/programs.ts";
import { type CliResult, runHere } from "./here.ts";

/** Workers that react fast and are not declared dead while processes start beside them. */
export const STEADY = { ...FAST, heartbeatInterval: 1_000, heartbeatTimeout: 20_000 };

const MAIN = program("src/cli/main.ts");

/** Commands that run until they are stopped: signals, exit code and log are those of a process. */
export const STAYING: readonly string[] = ["dev", "serve", "ingest", "publish"];

const CLEAN = { DATABASE_URL: "", TIDEMILL_DEBUG: "" };

export interface CliOptions {
  readonly cwd?: string;
  readonly env?: Readonly<Record<string, string>>;
}

export interface RunningCli {
  readonly child: ChildProcess;
  readonly ended: Promise<CliResult>;
  /** Of its standard output, so far. */
  readonly lines: readonly string[];
  /** Resolves with the first line, printed already or to come, that matches. */
  line(pattern: RegExp): Promise<string>;
}

/** Whoever waits longer is told what was said instead. */
const LINE_MS_MAX = 60_000;

/** The command line in a process of its own, with a pipe for a terminal. */
export function startCli(args: readonly string[], options: CliOptions = {}): RunningCli {
  return startNode([MAIN, ...args], options);
}

/** A program in a process of its own. */
export function startNode(args: readonly string[], { cwd, env }: CliOptions = {}): RunningCli {
  const child = spawn(process.execPath, [...args], {
    cwd,
    env: { ...process.env, ...CLEAN, ...env },
    stdio: ["ignore", "pipe", "pipe"],
  });
  const output = { stdout: "", stderr: "" };
  const lines: string[] = [];
  const waiting = new Set<() => void>();
  child.stdout.setEncoding("utf8").on("data", (text: string) => (output.stdout += text));
  child.stderr.setEncoding("utf8").on("data", (text: string) => (output.stderr += text));
  createInterface({ input: child.stdout }).on("line", (line) => {
    lines.push(line);
    for (const look of waiting) look();
  });
  const ended = once(child, "close").then(([code]) => ({ code: code as number | null, ...output }));
  onCleanup(async () => {
    child.kill("SIGKILL");
    await ended;
  });
  return {
    child,
    ended,
    lines,
    line: (pattern) =>
      new Promise((resolve, reject) => {
        const fail = (): void =>
          reject(new Error(`no ${pattern} in:\n${output.stdout}${output.stderr}`));
        const timer = setTimeout(fail, LINE_MS_MAX);
        const look = (): void => {
          const found = lines.find((line) => pattern.test(line));
          if (found === undefined) return;
          clearTimeout(timer);
          waiting.delete(look);
          resolve(found);
        };
        waiting.add(look);
        look();
        void ended.then(fail);
      }),
  };
}

/** In this process where that is the same: see `processes.test.ts`. */
export async function runCli(
  args: readonly string[],
  options: CliOptions = {},
): Promise<CliResult> {
  const needsProcess = options.cwd !== undefined || STAYING.includes(args[0] ?? "");
  if (needsProcess) return await startCli(args, options).ended;
  return await runHere(args, { ...CLEAN, ...options.env });
}

/** Runs what must succeed, and returns its output. */
export async function cli(url: string, ...args: string[]): Promise<string> {
  const { code, stdout, stderr } = await runCli(args, { env: { DATABASE_URL: url } });
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  return stdout;
}

/** Rows in every table, to show that nothing was written. */
export async function tableCounts(pool: pg.Pool): Promise<Record<string, number>> {
  const { rows } = await pool.query<{ name: string }>(
    `SELECT format('%I.%I', schemaname, tablename) AS name FROM pg_tables
      WHERE schemaname NOT IN ('pg_catalog', 'information_schema') ORDER BY 1`,
  );
  if (rows.length === 0) return {};
  const counted = await pool.query<{ name: string; n: number }>(
    rows
      .map(({ name }) => `SELECT '${name}' AS name, count(*)::int AS n FROM ${name}`)
      .join(" UNION ALL "),
  );
  return Object.fromEntries(counted.rows.map(({ name, n }) => [name, n]));
}
