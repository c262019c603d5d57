import { randomUUID } from "node:crypto";
import { constants, copyFile, readFile, rename, rm, stat, writeFile } from "node:fs/promises";
import { ConfigError, TimeoutError } from "../base/errors.ts";
import { codeOf, ifPresent, readIfPresent } from "./files.ts";
import { pollUntil } from "./polling.ts";
import { findProcess } from "./process-table.ts";

/** Longer than a fetch of the binaries, an initdb and a crash recovery together. */
const WAIT_MS_MAX = 240_000;
/** How long a holder may take between making the file and writing its name into it. */
const UNSIGNED_MS_MAX = 5_000;

interface Holder {
  readonly pid: number;
  readonly startedAt: string;
}

/** The file that says who is starting or removing the cluster of `dataDir`. */
export function lockPath(dataDir: string): string {
  return `${dataDir}.lock`;
}

/**
 * Runs `work` while no other process starts or removes the same cluster. PostgreSQL guards a
 * running server by itself; what it does not guard is initdb, and our own decision that a pid file
 * is stale.
 *
 * The lock is a file naming its holder. A holder that died is found by its pid and start time, and
 * its lock is taken over. The file lies beside the data directory, which has to be empty for
 * initdb.
 */
export async function withStartLock<T>(dataDir: string, work: () => Promise<T>): Promise<T> {
  const path = lockPath(dataDir);
  const mine = JSON.stringify(await ourselves());
  const acquired = await pollUntil(() => tryAcquire(path, mine), {
    everyMs: 50,
    msMax: WAIT_MS_MAX,
  });
  if (acquired === undefined) {
    throw new TimeoutError(
      `another process has been starting the server of ${dataDir} for ${WAIT_MS_MAX / 1000} s; ` +
        `if that is not so, remove ${path}`,
    );
  }
  try {
    return await work();
  } finally {
    if ((await readIfPresent(path)) === mine) await rm(path, { force: true });
  }
}

async function ourselves(): Promise<Holder> {
  const entry = await findProcess(process.pid);
  return { pid: process.pid, startedAt: entry?.startedAt ?? "" };
}

async function tryAcquire(path: string, mine: string): Promise<true | undefined> {
  try {
    await writeFile(path, mine, { flag: "wx", mode: 0o600 });
    return true;
  } catch (error) {
    if (codeOf(error) !== "EEXIST") {
      throw new ConfigError(`cannot write ${path}, which guards the data directory beside it`, {
        cause: error,
      });
    }
  }
  const theirs = await readIfPresent(path);
  if (theirs !== undefined && (await isAbandoned(path, theirs))) await breakLock(path, theirs);
  return undefined;
}

async function isAbandoned(path: string, text: string): Promise<boolean> {
  if (text === "") {
    const found = await ifPresent(stat(path));
    return found !== undefined && Date.now() - found.mtimeMs > UNSIGNED_MS_MAX;
  }
  const holder = JSON.parse(text) as Holder;
  const entry = await findProcess(holder.pid);
  return entry === undefined || entry.startedAt !== holder.startedAt;
}

/**
 * Moves an abandoned lock out of the way. Someone else may have done so just before and hold a new
 * one by now; then that one was moved, and is put back.
 */
async function breakLock(path: string, abandoned: string): Promise<void> {
  const moved = `${path}.${randomUUID()}`;
  if ((await ifPresent(rename(path, moved).then(() => true))) === undefined) return;
  try {
    if ((await readFile(moved, "utf8")) === abandoned) return;
    await copyFile(moved, path, constants.COPYFILE_EXCL).catch((error: unknown) => {
      if (codeOf(error) !== "EEXIST") throw error;
    });
  } finally {
    await rm(moved, { force: true });
  }
}
