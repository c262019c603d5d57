import { execFile, type SpawnOptions } from "node:child_process";
import { access, chmod, constants, mkdir, realpath, stat } from "node:fs/promises";
import { dirname } from "node:path";
import { promisify } from "node:util";
import { ConfigError } from "../base/errors.ts";
import { ifPresent, isPresent } from "./files.ts";

const run = promisify(execFile);

/** The user that PostgreSQL runs as when we may not run it as ourselves. */
export interface RuntimeUser {
  readonly name: string;
  readonly uid: number;
  readonly gid: number;
}

/** Permission bits as in one digit of a file mode. */
export const ENTER = 0o1;
export const READ_AND_ENTER = 0o5;

/**
 * Who PostgreSQL runs as; `undefined` means as ourselves. It refuses to run as root, so root lends
 * its server to the owner of an existing cluster, else to `postgres`, else to `nobody`. The user
 * must have a passwd entry, because initdb looks itself up.
 */
export async function runtimeUser(dataDir: string): Promise<RuntimeUser | undefined> {
  if (process.getuid?.() !== 0) return undefined;
  const owner = await ifPresent(stat(dataDir));
  const isCluster = (await ifPresent(stat(`${dataDir}/PG_VERSION`))) !== undefined;
  if (isCluster && owner !== undefined && owner.uid !== 0) {
    return { name: `uid ${owner.uid}`, uid: owner.uid, gid: owner.gid };
  }
  for (const name of ["postgres", "nobody"]) {
    const found = await lookUp(name);
    if (found !== undefined) return found;
  }
  throw new ConfigError(
    "PostgreSQL does not run as root, and neither the user postgres nor nobody exists; " +
      "start tidemill as an ordinary user, or set DATABASE_URL",
  );
}

async function lookUp(name: string): Promise<RuntimeUser | undefined> {
  try {
    const [uid, gid] = await Promise.all([run("id", ["-u", name]), run("id", ["-g", name])]);
    return { name, uid: Number(uid.stdout), gid: Number(gid.stdout) };
  } catch {
    return undefined;
  }
}

/** Spawn options that make a program of PostgreSQL run as `user`, with a bare environment. */
export function spawnAs(user: RuntimeUser | undefined): SpawnOptions {
  // The number of `nobody` on macOS is 2^32 - 2, and spawn takes signed numbers.
  const identity = user === undefined ? {} : { uid: user.uid | 0, gid: user.gid | 0 };
  return { ...identity, cwd: process.platform === "win32" ? process.cwd() : "/", env: bareEnv() };
}

/**
 * The caller's environment stays out: PG* variables would change the server's defaults, its locale
 * would translate the messages we look for, and its secrets have no business in a daemon.
 */
function bareEnv(): NodeJS.ProcessEnv {
  const kept = ["PATH", "LD_LIBRARY_PATH", "TMPDIR", "SystemRoot", "TEMP", "TMP"];
  const env: NodeJS.ProcessEnv = { LC_ALL: "C", TZ: "UTC" };
  for (const name of kept) {
    const value = process.env[name];
    if (value !== undefined) env[name] = value;
  }
  return env;
}

/** Whether `user` has `bits` on `path`, given that it can get there. */
export async function isAllowed(
  path: string,
  user: RuntimeUser | undefined,
  bits: number,
): Promise<boolean> {
  if (user === undefined) {
    const wanted = bits === ENTER ? constants.X_OK : constants.R_OK | constants.X_OK;
    return access(path, wanted).then(
      () => true,
      () => false,
    );
  }
  const { uid, gid, mode } = await stat(path);
  const shift = uid === user.uid ? 6 : gid === user.gid ? 3 : 0;
  return ((mode >> shift) & bits) === bits;
}

/**
 * The topmost directory on the way to `path`, itself included, that exists and that `user` may not
 * enter.
 */
export async function obstacleOnTheWay(
  path: string,
  user: RuntimeUser | undefined,
): Promise<string | undefined> {
  for (const directory of ancestors(await realpath(await nearestExisting(path)))) {
    if (!(await isAllowed(directory, user, ENTER))) return directory;
  }
  return undefined;
}

async function nearestExisting(path: string): Promise<string> {
  const parent = dirname(path);
  return parent === path || (await isPresent(path)) ? path : await nearestExisting(parent);
}

function ancestors(path: string): string[] {
  const parent = dirname(path);
  return parent === path ? [path] : [...ancestors(parent), path];
}

/**
 * Makes a directory and its parents. Those it had to make are opened for passing through, because
 * a root with umask 077 would lock its own runtime user out.
 */
export async function makeReachable(directory: string): Promise<void> {
  const first = await mkdir(directory, { recursive: true, mode: 0o755 }).catch((error: unknown) => {
    throw new ConfigError(`cannot make the directory ${directory}`, { cause: error });
  });
  if (first === undefined) return;
  for (const made of ancestors(directory).filter((one) => one.length >= first.length)) {
    await chmod(made, 0o755);
  }
}
