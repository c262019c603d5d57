import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, symlinkSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const BUILD = join(ROOT, ".test-build");

/**
 * Tests start hundreds of processes, and a loader that compiles costs each of them a second. So the
 * programs are compiled once, beside what the sources expect next to them.
 */
export function buildPrograms(): void {
  mkdirSync(BUILD, { recursive: true });
  for (const name of ["package.json", "sql"]) {
    if (!existsSync(join(BUILD, name))) symlinkSync(join("..", name), join(BUILD, name));
  }
  const compiler = createRequire(import.meta.url).resolve("typescript/package.json");
  execFileSync(process.execPath, [join(compiler, "../bin/tsc"), "-p", "tsconfig.test.json"], {
    cwd: ROOT,
    stdio: ["ignore", "inherit", "inherit"],
  });
}

/** The compiled form of a source, such as `src/cli/main.ts`. */
export const program = (source: string): string => join(BUILD, source.replace(/\.ts$/, ".js"));
