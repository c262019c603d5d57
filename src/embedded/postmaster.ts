import { execFile } from "node:child_process";
import { readFile, realpath, rm, stat } from "node:fs/promises";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { TimeoutError } from "../base/errors.ts";
import { codeOf, ifPresent, openEmptied, readIfPresent } from "./files.ts";
import { pollUntil } from "./polling.ts";
import { findProcess } from "./process-table.ts";

const run = promisify(execFile);

export type StopMode = "fast" | "immediate" | "smart";

const STOP_SIGNALS = { smart: "SIGTERM", fast: "SIGINT", immediate: "SIGQUIT" } as const;
const STOP_MS_MAX = 60_000;
/** Includes the recovery of a crashed cluster. */
export const START_MS_MAX = 60_000;
/** How long PostgreSQL may take between making its pid file and writing its pid into it. */
const UNSIGNED_MS_MAX = 5_000;
/** Above every system's highest pid. */
const NOBODYS_PID = 2_147_483_647;

/** What `postmaster.pid` says: pid in line 1, port in line 4, status in line 8. */
export interface PidFile {
  readonly pid: number;
  readonly port: number | undefined;
  readonly isReady: boolean;
}

export interface RunningServer {
  readonly pid: number;
  readonly port: number;
}

/** PostgreSQL writes the lines one after another, so the later ones may still be missing. */
export function parsePidFile(text: string): PidFile | undefined {
  const lines = text.split("\n").map((line) => line.trim());
  // A single-user backend signs with its pid negated.
  const pid = Math.abs(Number.parseInt(lines[0] ?? "", 10));
  if (!Number.isSafeInteger(pid) || pid === 0) return undefined;
  const port = Number.parseInt(lines[3] ?? "", 10);
  return { pid, port: Number.isNaN(port) ? undefined : port, isReady: lines[7] === "ready" };
}

export function pidFilePath(dataDir: string): string {
  return join(dataDir, "postmaster.pid");
}

/**
 * The server that runs in `dataDir` and accepts connections, whoever started it. One that is
 * starting or stopping is waited for. `undefined` means that none runs and that one can be started:
 * a stale pid file no longer stands in the way.
 *
 * Must be called under the start lock, because it rewrites stale files.
 */
export async function settledServer(dataDir: string): Promise<RunningServer | undefined> {
  const answer = await pollUntil(() => serverOrNothing(dataDir), {
    everyMs: 25,
    msMax: START_MS_MAX,
  });
  if (answer !== undefined) return answer.server;
  throw new TimeoutError(
    `the PostgreSQL of ${dataDir} has been starting or stopping for ${START_MS_MAX / 1000} s`,
  );
}

/** `undefined` while it cannot be told yet. */
async function serverOrNothing(
  dataDir: string,
): Promise<{ readonly server: RunningServer | undefined } | undefined> {
  const path = pidFilePath(dataDir);
  const text = await readIfPresent(path);
  if (text === undefined) return { server: undefined };
  const written = parsePidFile(text);
  if (written === undefined) {
    const found = await ifPresent(stat(path));
    if (found === undefined || Date.now() - found.mtimeMs <= UNSIGNED_MS_MAX) return undefined;
    await rm(path, { force: true });
    return { server: undefined };
  }
  if (!(await isPostmaster(written.pid, dataDir))) {
    await disown(path, text);
    return { server: undefined };
  }
  const { pid, port, isReady } = written;
  return isReady && port !== undefined ? { server: { pid, port } } : undefined;
}

/** Whether this pid is PostgreSQL and, where the system tells us, the one of this very cluster. */
export async function isPostmaster(pid: number, dataDir: string): Promise<boolean> {
  const entry = await findProcess(pid);
  if (entry === undefined || !/^(postgres|postmaster)(\.exe)?$/i.test(entry.command)) return false;
  // The postmaster works in its data directory, so a server of another cluster is told apart.
  const directory = entry.directory?.replace(/ \(deleted\)$/, "");
  return directory === undefined || directory === ((await ifPresent(realpath(dataDir))) ?? dataDir);
}

/**
 * Rewrites a stale pid file to name no process. PostgreSQL ignores the file of a dead process by
 * itself, but not when the pid is a zombie or belongs to another program by now.
 *
 * The file is not removed: by its line 7 the next server can tell that orphaned backends of the
 * killed one still use the data, and refuses to start beside them.
 */
async function disown(path: string, text: string): Promise<void> {
  const file = await openEmptied(path, 0o600);
  try {
    await file.writeFile(text.replace(/^\s*-?\d+/, String(NOBODYS_PID)));
  } finally {
    await file.close();
  }
}

/**
 * Stops the server with this pid and waits until the process is gone. Does nothing when that has
 * happened already, even if the pid belongs to another process by now.
 */
export async function stopPostmaster(pid: number, dataDir: string, mode: StopMode): Promise<void> {
  if (!(await isPostmaster(pid, dataDir))) return;
  await signal(pid, dataDir, mode);
  const gone = await pollUntil(
    async () => ((await isPostmaster(pid, dataDir)) ? undefined : true),
    { everyMs: 20, msMax: STOP_MS_MAX },
  );
  if (gone !== undefined) return;
  throw new TimeoutError(
    `PostgreSQL ${pid} of ${dataDir} did not stop (${mode}) within ${STOP_MS_MAX / 1000} s`,
  );
}

async function signal(pid: number, dataDir: string, mode: StopMode): Promise<void> {
  if (process.platform === "win32") {
    // Windows has no signals; PostgreSQL listens for them on a pipe that pg_ctl knows.
    const started = await readFile(join(dataDir, "postmaster.opts"), "utf8");
    const postgres = started.replace(/ "-D".*$/s, "");
    const name = STOP_SIGNALS[mode].replace(/^SIG/, "");
    await run(join(dirname(postgres), "pg_ctl.exe"), ["kill", name, String(pid)]);
    return;
  }
  try {
    process.kill(pid, STOP_SIGNALS[mode]);
  } catch (error) {
    if (codeOf(error) !== "ESRCH") throw error;
  }
}
