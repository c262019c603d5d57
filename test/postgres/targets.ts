import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { isAbsolute, join } from "node:path";
import { fileURLToPath } from "node:url";

/** A PostgreSQL to run the tests on. */
export interface Target {
  readonly name: string;
  /** The directory with its bin, lib and share. */
  readonly installation: string;
  /** The package that brings it, with the version that is wanted of it. */
  readonly brought?: { readonly folder: string; readonly version: string };
}

const FOLDER = fileURLToPath(new URL(".", import.meta.url));
const PREFIX = "postgres-";

interface Manifest {
  readonly version: string;
  readonly optionalDependencies: Readonly<Record<string, string>>;
}

const manifestIn = (folder: string): Manifest =>
  JSON.parse(readFileSync(join(folder, "package.json"), "utf8")) as Manifest;

/** Majors of our packages, or absolute paths of installations; all majors when none is named. */
export function targetsOf(names: readonly string[]): Target[] {
  const majors = bundled();
  const unknown = names.filter((name) => !majors.has(name) && !isAbsolute(name));
  if (unknown.length > 0) {
    const known = [...majors.keys()].join(", ");
    throw new Error(
      `no PostgreSQL ${unknown.join(", ")} to test on; there are ${known}, and any other by the ` +
        "absolute path of its installation",
    );
  }
  return (names.length > 0 ? names : [...majors.keys()]).map(
    (name) => majors.get(name) ?? { name: `in ${name}`, installation: name },
  );
}

function bundled(): ReadonlyMap<string, Target> {
  const packages = Object.entries(manifestIn(FOLDER).optionalDependencies);
  return new Map(
    packages.map(([alias, spec]) => {
      const name = alias.slice(PREFIX.length);
      const folder = join(FOLDER, "node_modules", alias);
      const version = spec.slice(spec.lastIndexOf("@") + 1);
      return [name, { name, installation: join(folder, "native"), brought: { folder, version } }];
    }),
  );
}

/**
 * Installs the packages of those that are not there yet. Without their scripts: the links that
 * these make are made by the launcher.
 */
export function bringIn(targets: readonly Target[]): void {
  if (targets.every(isThere)) return;
  const flags = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"];
  execFileSync("npm", ["ci", "--prefix", FOLDER, ...flags], { stdio: "inherit" });
  const missing = targets.filter((target) => !isThere(target));
  if (missing.length === 0) return;
  throw new Error(
    `test/postgres/package.json has no PostgreSQL ${missing.map(({ name }) => name).join(", ")} ` +
      "for this platform; name the absolute path of an installation instead",
  );
}

function isThere({ brought }: Target): boolean {
  if (brought === undefined) return true; // The launcher says what is wrong with the path.
  const { folder, version } = brought;
  return existsSync(folder) && manifestIn(folder).version === version;
}
