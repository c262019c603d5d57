import { createHash, randomUUID } from "node:crypto";
import {
  access,
  chmod,
  constants,
  cp,
  readdir,
  realpath,
  rm,
  stat,
  symlink,
} from "node:fs/promises";
import { basename, dirname, join, relative } from "node:path";
import { codeOf, isPresent, publishDirectory, readIfPresent } from "./files.ts";
import {
  isAllowed,
  makeReachable,
  obstacleOnTheWay,
  READ_AND_ENTER,
  type RuntimeUser,
} from "./runtime-user.ts";

const PARTS = ["bin", "lib", "share"];

interface Link {
  readonly source: string;
  readonly target: string;
}

/** The path of a program of an installation. */
export function program(installation: string, name: string): string {
  return join(installation, "bin", process.platform === "win32" ? `${name}.exe` : name);
}

/**
 * Gives a directory with bin, lib and share that `user` can run and whose shared libraries have all
 * their names. That is `installation` itself where possible, else a copy in the cache.
 *
 * npm packages carry no symbolic links; these list theirs in `pg-symlinks.json` for an install
 * script, which npm 12, pnpm and bun do not run, and without which no program of the package
 * starts.
 */
export async function prepareInstallation(
  installation: string,
  user: RuntimeUser | undefined,
  cacheDir: string,
): Promise<string> {
  const missing = await missingLinks(installation);
  const isUsable = await isRunnableBy(installation, user);
  if (isUsable && missing.length === 0) return installation;
  if (isUsable && (await isWritable(join(installation, "lib")))) {
    await makeLinks(installation, missing);
    return installation;
  }
  return await copyToCache(installation, cacheDir);
}

async function missingLinks(installation: string): Promise<Link[]> {
  const listed = await readIfPresent(join(installation, "pg-symlinks.json"));
  if (listed === undefined) return [];
  const missing: Link[] = [];
  for (const { source, target } of JSON.parse(listed) as Link[]) {
    const link = { source: withoutNative(source), target: withoutNative(target) };
    if (!(await isPresent(join(installation, link.target)))) missing.push(link);
  }
  return missing;
}

/** The list's paths start at the package, ours at its `native` directory. */
function withoutNative(path: string): string {
  return path.replace(/^native\//, "");
}

/** Safe to do twice at once: a link appears whole, and whoever is second finds it there. */
async function makeLinks(installation: string, links: readonly Link[]): Promise<void> {
  for (const { source, target } of links) {
    try {
      await symlink(relative(dirname(target), source), join(installation, target));
    } catch (error) {
      if (codeOf(error) !== "EEXIST") throw error;
    }
  }
}

async function isRunnableBy(installation: string, user: RuntimeUser | undefined) {
  if ((await obstacleOnTheWay(installation, user)) !== undefined) return false;
  const needed = [
    join(installation, "bin"),
    program(installation, "postgres"),
    program(installation, "initdb"),
    join(installation, "lib"),
  ];
  for (const path of needed) {
    if (!(await isAllowed(path, user, READ_AND_ENTER))) return false;
  }
  return true;
}

async function isWritable(directory: string): Promise<boolean> {
  return access(directory, constants.W_OK).then(
    () => true,
    () => false,
  );
}

/** The copy is named for the program it was made of, so a changed installation is copied anew. */
async function copyToCache(installation: string, cacheDir: string): Promise<string> {
  const original = await realpath(program(installation, "postgres"));
  const { size, mtimeMs } = await stat(original);
  const name = createHash("sha256").update(`${original} ${size} ${mtimeMs}`).digest("hex");
  const target = join(cacheDir, `copy-${name.slice(0, 16)}`);
  if (await isPresent(target)) return target;

  const staged = join(cacheDir, `copying-${randomUUID()}`);
  await makeReachable(staged);
  try {
    for (const part of PARTS) {
      const from = join(installation, part);
      if (!(await isPresent(from))) continue;
      await cp(from, join(staged, part), { recursive: true, verbatimSymlinks: true });
    }
    const list = join(installation, "pg-symlinks.json");
    if (await isPresent(list)) await cp(list, join(staged, basename(list)));
    await makeLinks(staged, await missingLinks(staged));
    await openToAll(staged);
    await publishDirectory(staged, target);
  } finally {
    await rm(staged, { recursive: true, force: true });
  }
  return target;
}

/** The original may have been unpacked under umask 077, and its modes came along. */
async function openToAll(tree: string): Promise<void> {
  for (const entry of await readdir(tree, { withFileTypes: true, recursive: true })) {
    if (entry.isSymbolicLink()) continue;
    const runs = entry.isDirectory() || basename(entry.parentPath) === "bin";
    await chmod(join(entry.parentPath, entry.name), runs ? 0o755 : 0o644);
  }
}
