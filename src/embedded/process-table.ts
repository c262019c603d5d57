import { execFile } from "node:child_process";
import { readFile, readlink } from "node:fs/promises";
import { promisify } from "node:util";

const run = promisify(execFile);

export interface ProcessEntry {
  readonly pid: number;
  /** The name of the executable, without its directory. */
  readonly command: string;
  /** Opaque: equal for one process, different for a later one with the same pid. */
  readonly startedAt: string;
  /** The working directory, where the system tells it to us. */
  readonly directory: string | undefined;
}

/**
 * The living process with this pid. A zombie counts as gone: in a container whose first process
 * does not reap, a killed server stays in the table for ever and `kill(pid, 0)` keeps succeeding.
 */
export async function findProcess(pid: number): Promise<ProcessEntry | undefined> {
  if (!answersSignals(pid)) return undefined;
  if (process.platform === "linux") return await findInProc(pid);
  if (process.platform === "win32") return await findWithTasklist(pid);
  return await findWithPs(pid);
}

function answersSignals(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    // EPERM: it exists and belongs to someone else.
    return error instanceof Error && "code" in error && error.code === "EPERM";
  }
}

async function findInProc(pid: number): Promise<ProcessEntry | undefined> {
  let status: string;
  try {
    status = await readFile(`/proc/${pid}/stat`, "utf8");
  } catch {
    return undefined;
  }
  const found = parseProcStat(status);
  if (found === undefined) return undefined;
  const directory = await readlink(`/proc/${pid}/cwd`).catch(() => undefined);
  return { pid, ...found, directory };
}

/** Parses `/proc/<pid>/stat`. The name stands in brackets and may itself contain brackets. */
export function parseProcStat(
  status: string,
): { readonly command: string; readonly startedAt: string } | undefined {
  const opening = status.indexOf("(");
  const closing = status.lastIndexOf(")");
  if (opening === -1 || closing === -1) return undefined;
  const fields = status.slice(closing + 2).split(" ");
  const state = fields[0];
  const startedAt = fields[19];
  if (startedAt === undefined || state === "Z" || state === "X") return undefined;
  return { command: status.slice(opening + 1, closing), startedAt };
}

async function findWithPs(pid: number): Promise<ProcessEntry | undefined> {
  const format = "stat=,lstart=,comm=";
  const env = { ...process.env, LC_ALL: "C" };
  const shown = await run("ps", ["-o", format, "-p", String(pid)], { env }).catch(() => undefined);
  // Ss   Sat Nov 15 19:30:00 2025   /opt/postgresql/bin/postgres
  const match = /^\s*(\S+)\s+(\S+\s+\S+\s+\S+\s+\S+\s+\S+)\s+(.+?)\s*$/.exec(shown?.stdout ?? "");
  const [, state, startedAt, path] = match ?? [];
  if (state === undefined || startedAt === undefined || path === undefined) return undefined;
  if (state.startsWith("Z")) return undefined;
  return { pid, command: path.replace(/^.*\//, ""), startedAt, directory: undefined };
}

async function findWithTasklist(pid: number): Promise<ProcessEntry | undefined> {
  const args = ["/FI", `PID eq ${pid}`, "/FO", "CSV", "/NH"];
  const shown = await run("tasklist", args).catch(() => undefined);
  const command = /^"([^"]+)","\d+"/m.exec(shown?.stdout ?? "")?.[1];
  if (command === undefined) return undefined;
  return { pid, command, startedAt: "", directory: undefined };
}
