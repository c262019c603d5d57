import { type ChildProcess, spawn } from "node:child_process";
import { createServer } from "node:net";
import { join } from "node:path";
import { systemClock } from "../base/clock.ts";
import { messageOf, UnavailableError } from "../base/errors.ts";
import { openEmptied, readIfPresent } from "./files.ts";
import { program } from "./native-tree.ts";
import { pollUntil } from "./polling.ts";
import { parsePidFile, pidFilePath, type RunningServer, START_MS_MAX } from "./postmaster.ts";
import { type RuntimeUser, spawnAs } from "./runtime-user.ts";
import { lastLogLines, logPath } from "./server-log.ts";

const RETRY_MS = 100;
const STOP_MS_MAX = 10_000;
/** What a socket address holds on macOS; Linux allows 107. */
const SOCKET_PATH_BYTES_MAX = 103;

/** Another program took the port between our finding it free and the server binding it. */
const PORT_TAKEN = /could not bind IPv4 address|could not create any TCP\/IP sockets/;
/** Backends of a killed server notice its death one by one, and hold its memory until then. */
const ORPHANS_LEFT = /pre-existing shared memory block .* is still in use/;

export interface LaunchRequest {
  readonly installation: string;
  readonly dataDir: string;
  readonly user: RuntimeUser | undefined;
  /** When absent, a free one is picked, and picked again should it be taken meanwhile. */
  readonly port?: number | undefined;
  readonly settings: Readonly<Record<string, string>>;
  /** Finds a port that is free at the moment. Tests pass one that is not. */
  readonly pickPort?: () => Promise<number>;
}

/** Starts a server and waits until it accepts connections. Must be called under the start lock. */
export async function launchServer(request: LaunchRequest): Promise<RunningServer> {
  const { pickPort = freePort } = request;
  const deadline = systemClock.now() + START_MS_MAX;
  for (;;) {
    const port = request.port ?? (await pickPort());
    const outcome = await launchOnce(request, port);
    if (typeof outcome !== "string") return outcome;
    const isPassing =
      ORPHANS_LEFT.test(outcome) || (request.port === undefined && PORT_TAKEN.test(outcome));
    if (!isPassing || systemClock.now() >= deadline) {
      throw new UnavailableError(
        `PostgreSQL did not start in ${request.dataDir} on port ${port}. Its last words:\n` +
          outcome,
      );
    }
    await new Promise<void>((resolve) => systemClock.after(RETRY_MS, resolve));
  }
}

/** The running server, or the reason why there is none. */
async function launchOnce(request: LaunchRequest, port: number): Promise<RunningServer | string> {
  const { dataDir } = request;
  const log = await openEmptied(logPath(dataDir), 0o600);
  const child = spawnServer(request, port, log.fd);
  let failure: string | undefined;
  // Heard from the start: a server that refuses may be gone before the log is closed.
  child.once("error", (error) => {
    failure = messageOf(error);
  });
  child.once("exit", (code, signal) => {
    failure = `exited with ${code ?? signal}`;
  });
  await log.close();
  const outcome = await pollUntil<RunningServer | "failed">(
    async () => {
      if (failure !== undefined) return "failed";
      const written = parsePidFile((await readIfPresent(pidFilePath(dataDir))) ?? "");
      if (written === undefined || written.pid !== child.pid || !written.isReady) return undefined;
      return { pid: written.pid, port };
    },
    { everyMs: 10, msMax: START_MS_MAX },
  );
  if (outcome !== undefined && outcome !== "failed") return outcome;
  if (outcome === undefined) {
    child.kill("SIGQUIT");
    await pollUntil(async () => failure, { everyMs: 20, msMax: STOP_MS_MAX });
    failure = `was not ready within ${START_MS_MAX / 1000} s`;
  }
  return `${await lastLogLines(dataDir)}\npostgres ${failure}`.trim();
}

/**
 * Spawns the server so that it outlives us on purpose. It is in a session of its own, so Ctrl-C in
 * the terminal reaches the application, which stops it in order, and not the server first. And when
 * this process is killed with SIGKILL, the server keeps running with its data intact: the next
 * start adopts it, which is faster and safer than a server that dies with whoever started it.
 */
function spawnServer(request: LaunchRequest, port: number, log: number): ChildProcess {
  const { installation, dataDir, user, settings } = request;
  const child = spawn(program(installation, "postgres"), serverArguments(dataDir, port, settings), {
    ...spawnAs(user),
    detached: true,
    stdio: ["ignore", log, log],
    windowsHide: true,
  });
  child.unref();
  return child;
}

export function serverArguments(
  dataDir: string,
  port: number,
  settings: Readonly<Record<string, string>>,
): string[] {
  const given = Object.entries(settings).flatMap(([name, value]) => ["-c", `${name}=${value}`]);
  const sockets = `unix_socket_directories=${socketDirectories(dataDir)}`;
  const listen = "listen_addresses=127.0.0.1";
  return ["-D", dataDir, "-p", String(port), ...given, "-c", listen, "-c", sockets];
}

/** The data directory is closed to others already, which makes it the place for the socket. */
function socketDirectories(dataDir: string): string {
  const socket = join(dataDir, ".s.PGSQL.65535");
  if (process.platform === "win32") return "";
  if (Buffer.byteLength(socket) > SOCKET_PATH_BYTES_MAX) return "";
  return `"${dataDir.replaceAll('"', '""')}"`; // The setting is a list; quotes protect commas.
}

async function freePort(): Promise<number> {
  return await new Promise((resolve, reject) => {
    const server = createServer();
    server.once("error", reject);
    server.listen(0, "127.0.0.1", () => {
      const address = server.address();
      const port = typeof address === "object" && address !== null ? address.port : 0;
      server.close(() => resolve(port));
    });
  });
}
