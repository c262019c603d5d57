import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import type pg from "pg";
import { expect, vi } from "vitest";
import { onCleanup } from "../../support/database.ts";
import { FAST } from "../../support/options.ts";
import { program } from "../../support/programs.ts";

// Every command is a process of its own, and they start slowly on a busy machine.
vi.setConfig({ testTimeout: 60_000 });

/** Workers that react fast and are not declared dead while processes start beside them. */
export const STEADY = { ...FAST, heartbeatInterval: 1_000, heartbeatTimeout: 20_000 };

const MAIN = program("src/cli/main.ts");

export interface CliResult {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface CliOptions {
  readonly cwd?: string;
  readonly env?: Readonly<Record<string, string>>;
}

export interface RunningCli {
  readonly child: ChildProcess;
  readonly ended: Promise<CliResult>;
  /** Resolves with the first line, printed already or to come, that matches. */
  line(pattern: RegExp): Promise<string>;
}

/** The command line in a process of its own, with a pipe for a terminal. */
export function startCli(args: readonly string[], options: CliOptions = {}): RunningCli {
  return startNode([MAIN, ...args], options);
}

/** A program in a process of its own. */
export function startNode(args: readonly string[], { cwd, env }: CliOptions = {}): RunningCli {
  const child = spawn(process.execPath, [...args], {
    cwd,
    env: { ...process.env, DATABASE_URL: "", TIDEMILL_DEBUG: "", ...env },
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
    line: (pattern) =>
      new Promise((resolve, reject) => {
        const look = (): void => {
          const found = lines.find((line) => pattern.test(line));
          if (found === undefined) return;
          waiting.delete(look);
          resolve(found);
        };
        waiting.add(look);
        look();
        void ended.then(() =>
          reject(new Error(`no ${pattern} in:\n${output.stdout}${output.stderr}`)),
        );
      }),
  };
}

export async function runCli(args: readonly string[], options?: CliOptions): Promise<CliResult> {
  return await startCli(args, options).ended;
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
  const counts: Record<string, number> = {};
  for (const { name } of rows) {
    const counted = await pool.query<{ n: number }>(`SELECT count(*)::int AS n FROM ${name}`);
    counts[name] = counted.rows[0]?.n ?? 0;
  }
  return counts;
}
