import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { chmod, chown, mkdir, readdir, rename, rm, rmdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { ConfigError, UnavailableError } from "../base/errors.ts";
import { codeOf, ifPresent, readIfPresent } from "./files.ts";
import { program } from "./native-tree.ts";
import { type RuntimeUser, spawnAs } from "./runtime-user.ts";

const INITDB_MS_MAX = 120_000;

/**
 * The password lies inside the data directory, so that it lives and dies with the cluster it opens,
 * and so that any later process of this user can adopt the server.
 */
function passwordPath(dataDir: string): string {
  return join(dataDir, "tidemill-password");
}

/** The half-made cluster of a process that is initialising, or was killed while it did. */
export function stagingPath(dataDir: string): string {
  return `${dataDir}.new`;
}

/** The major version of the cluster in `dataDir`, or `undefined` when there is none yet. */
export async function clusterMajor(dataDir: string): Promise<string | undefined> {
  return (await readIfPresent(join(dataDir, "PG_VERSION")))?.trim();
}

export async function readPassword(dataDir: string): Promise<string> {
  const password = await readIfPresent(passwordPath(dataDir));
  if (password !== undefined) return password;
  throw new ConfigError(
    `the cluster in ${dataDir} was not made by tidemill, which has no password for it; ` +
      "name another data directory, or set DATABASE_URL to use that server",
  );
}

/** Refuses a directory that holds something else: it is neither ours to fill nor to remove. */
export async function refuseForeignContent(dataDir: string): Promise<void> {
  if ((await clusterMajor(dataDir)) !== undefined) {
    await readPassword(dataDir);
    return;
  }
  const entries = (await ifPresent(readdir(dataDir))) ?? [];
  if (entries.length === 0) return;
  throw new ConfigError(`${dataDir} is neither empty nor a PostgreSQL data directory`);
}

/**
 * Makes a cluster with one superuser and a random password. It is built aside and renamed into
 * place, so a process killed half way leaves no directory that looks like a cluster.
 *
 * Must be called under the start lock.
 */
export async function createCluster(
  dataDir: string,
  installation: string,
  user: RuntimeUser | undefined,
): Promise<void> {
  const staging = stagingPath(dataDir);
  const built = join(staging, "data");
  const secret = join(staging, "password");
  await rm(staging, { recursive: true, force: true });
  await mkdir(staging, { mode: 0o700 });
  try {
    await writeFile(secret, randomBytes(24).toString("base64url"), { mode: 0o600 });
    if (user !== undefined) {
      await chown(secret, user.uid, user.gid);
      await chown(staging, user.uid, user.gid);
    }
    await initdb(program(installation, "initdb"), built, secret, user);
    await rename(secret, passwordPath(built));
    await chmod(passwordPath(built), 0o600);
    await ifPresent(rmdir(dataDir));
    await rename(built, dataDir);
  } catch (error) {
    if (codeOf(error) !== "EBUSY" && codeOf(error) !== "EXDEV") throw error;
    throw new ConfigError(`${dataDir} is a mount point; name a directory inside it`, {
      cause: error,
    });
  } finally {
    await rm(staging, { recursive: true, force: true });
  }
}

async function initdb(
  path: string,
  dataDir: string,
  passwordFile: string,
  user: RuntimeUser | undefined,
): Promise<void> {
  const args = [
    `--pgdata=${dataDir}`,
    "--username=postgres",
    `--pwfile=${passwordFile}`,
    // Loopback is open to every user of the machine, so trust would be too.
    "--auth=scram-sha-256",
    "--encoding=UTF8",
    "--locale=C",
    // What a power cut in this second would lose is an empty cluster.
    "--no-sync",
    "--no-instructions",
  ];
  const child = spawn(path, args, {
    ...spawnAs(user),
    stdio: ["ignore", "pipe", "pipe"],
    timeout: INITDB_MS_MAX,
    windowsHide: true,
  });
  let output = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream?.on("data", (chunk: Buffer) => {
      output += chunk.toString();
    });
  }
  const ended = once(child, "close").catch((error: unknown) => {
    throw new UnavailableError(`${path} could not be run`, { cause: error });
  });
  const [code] = (await ended) as [number | null];
  if (code !== 0) throw new UnavailableError(`initdb could not make a cluster:\n${output.trim()}`);
}
