import { execFileSync } from "node:child_process";
import { readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

export const ROOT = fileURLToPath(new URL("../../..", import.meta.url));

const BINARY = /\.(png|ico|woff2?|gz|tgz|zip)$/;

/** What the project consists of: tracked, and new but not ignored. Deleted ones are left out. */
export const FILES: readonly string[] = execFileSync(
  "git",
  ["ls-files", "-co", "--exclude-standard", "-z"],
  { cwd: ROOT, encoding: "utf8" },
)
  .split("\0")
  .filter((file) => file !== "" && isFile(file))
  .sort();

export const TEXT_FILES: readonly string[] = FILES.filter((file) => !BINARY.test(file));
export const SOURCES: readonly string[] = FILES.filter(
  (file) => /^src\/.*\.ts$/.test(file) && !file.endsWith(".test.ts"),
);
export const TESTS: readonly string[] = FILES.filter((file) => file.endsWith(".test.ts"));

const texts = new Map<string, string>();

export function textOf(file: string): string {
  let text = texts.get(file);
  if (text === undefined) {
    text = readFileSync(join(ROOT, file), "utf8");
    texts.set(file, text);
  }
  return text;
}

/** Missing files have no text, so that a rule can say what it misses there. */
export function textIfAny(file: string): string {
  return FILES.includes(file) ? textOf(file) : "";
}

export function exists(path: string): boolean {
  return statSync(join(ROOT, path), { throwIfNoEntry: false }) !== undefined;
}

function isFile(path: string): boolean {
  return statSync(join(ROOT, path), { throwIfNoEntry: false })?.isFile() === true;
}

/** `file:line` of an offset. */
export function placeOf(file: string, offset: number): string {
  return `${file}:${textOf(file).slice(0, offset).split("\n").length}`;
}

/** Every match of a pattern in the given files, as `file:line: what was matched`. */
export function matches(files: readonly string[], pattern: RegExp): string[] {
  const everywhere = new RegExp(pattern, `${pattern.flags.replace("g", "")}g`);
  return files.flatMap((file) =>
    Array.from(
      textOf(file).matchAll(everywhere),
      (match) => `${placeOf(file, match.index)}: ${match[0].trim()}`,
    ),
  );
}
