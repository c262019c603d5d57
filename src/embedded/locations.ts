import { lstatSync } from "node:fs";
import { homedir, tmpdir } from "node:os";
import { isAbsolute, join } from "node:path";
import { ConfigError } from "../base/errors.ts";

export interface Surroundings {
  /** `undefined` on Windows. */
  readonly uid: number | undefined;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly home: string;
  readonly temporary: string;
}

/**
 * Where clusters and fetched binaries live unless told otherwise. Root's own home is closed to the
 * user that root lends its server to, hence a public place for root.
 */
export function stateRootFor({ uid, env, home, temporary }: Surroundings): string {
  if (uid === 0) return "/var/tmp/tidemill";
  const named = [env["XDG_CACHE_HOME"], env["LOCALAPPDATA"]].find(
    (path) => path !== undefined && isAbsolute(path),
  );
  if (named !== undefined) return join(named, "tidemill");
  // A container with an arbitrary uid has "/" for a home, which it cannot write to.
  if (home === "" || home === "/") return join(temporary, `tidemill-${uid ?? "user"}`);
  return join(home, ".cache", "tidemill");
}

/** A data directory that the user PostgreSQL runs as can reach. It is not made yet. */
export function defaultDataDir(): string {
  return join(stateRoot(), "dev");
}

/** Where binaries are kept that were fetched, or copied because they could not be used in place. */
export function defaultCacheDir(): string {
  return join(stateRoot(), "binaries");
}

function stateRoot(): string {
  const uid = process.getuid?.();
  const root = stateRootFor({ uid, env: process.env, home: homedir(), temporary: tmpdir() });
  if (uid !== undefined) refuseForeign(root, uid);
  return root;
}

/**
 * Anybody can make a directory in a public place first, and would then own the programs and the
 * data that we put there.
 */
function refuseForeign(path: string, uid: number): void {
  const found = lstatSync(path, { throwIfNoEntry: false });
  if (found === undefined) return;
  if (found.isDirectory() && found.uid === uid && (found.mode & 0o022) === 0) return;
  throw new ConfigError(
    `${path} is not a directory that only user ${uid} can write to; remove it or fix its owner`,
  );
}
