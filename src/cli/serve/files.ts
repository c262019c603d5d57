import { readFileSync, statSync } from "node:fs";
import { messageOf } from "../../base/errors.ts";
import type { JwtIssuerOptions } from "../../server/auth/issuer-options.ts";
import type { StaticTokenOptions } from "../../server/auth/static-tokens.ts";
import { UsageError } from "../errors.ts";

const BYTES_MAX = 1024 * 1024;

/** The text of a file that a flag names. Never repeats any of it: it may be a secret. */
export function readText(flag: string, path: string): string {
  try {
    const { size } = statSync(path);
    if (size > BYTES_MAX) throw new Error(`it has more than ${BYTES_MAX} bytes`);
    return readFileSync(path, "utf8");
  } catch (error) {
    throw new UsageError(`${flag}: ${path} cannot be read: ${messageOf(error)}`);
  }
}

/** A list, alone or as the only member of an object. What is in it is checked where it is used. */
function readList(flag: string, path: string, name: string): readonly unknown[] {
  const given = readJson(flag, path);
  const all: unknown =
    isObject(given) && Object.keys(given).join() === name ? Reflect.get(given, name) : given;
  if (Array.isArray(all) && all.length > 0 && all.every(isObject)) return all;
  throw new UsageError(`${flag}: ${path} must be a list of objects: { "${name}": [{ … }] }`);
}

export function readJson(flag: string, path: string): unknown {
  const text = readText(flag, path);
  try {
    return JSON.parse(text);
  } catch {
    throw new UsageError(`${flag}: ${path} is not JSON`); // The parser would quote secrets.
  }
}

const isObject = (value: unknown): value is object =>
  typeof value === "object" && value !== null && !Array.isArray(value);

export function readTokens(path: string): readonly StaticTokenOptions[] {
  return readList("--tokens-file", path, "tokens") as readonly StaticTokenOptions[];
}

export function readIssuers(path: string): readonly JwtIssuerOptions[] {
  return readList("--issuers-file", path, "issuers") as readonly JwtIssuerOptions[];
}

/** Whether others on this machine may read it. */
export function isReadByOthers(path: string): boolean {
  return process.platform !== "win32" && (statSync(path).mode & 0o004) !== 0;
}
