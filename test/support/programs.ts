import { existsSync, mkdirSync, symlinkSync } from "node:fs";
import { join, relative } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { build } from "rolldown";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const BUILD = join(ROOT, ".test-build");

/** All that `program` may be asked for. */
const PROGRAMS = [
  "src/cli/main.ts",
  "test/support/worker-process.ts",
  "test/support/task-process.ts",
  "test/support/server-process.ts",
  "test/support/stopping-process.ts",
  "test/support/job-process.ts",
  "test/support/events-process.ts",
  "test/support/job-target.ts",
  "chaos/worker-program.ts",
  "chaos/producer-program.ts",
  "chaos/server-program.ts",
  "chaos/remote-producer-program.ts",
  "chaos/remote-worker-program.ts",
] as const;

export type Program = (typeof PROGRAMS)[number];

const compiled = (source: string): string => join(BUILD, source.replace(/\.ts$/, ".js"));

/** Sources find files beside them, where they would be had each been compiled alone. */
const placed = {
  name: "placed",
  transform: {
    filter: { code: "import.meta.url" },
    handler: (code: string, id: string): string => {
      const url = pathToFileURL(compiled(relative(ROOT, id))).href;
      return code.replaceAll("import.meta.url", JSON.stringify(url));
    },
  },
};

/**
 * Tests start hundreds of processes. A loader that compiles costs each of them a second, and
 * hundreds of small files a quarter of one. So the programs are compiled once, into few files.
 */
export async function buildPrograms(): Promise<void> {
  mkdirSync(BUILD, { recursive: true });
  for (const name of ["package.json", "sql"]) {
    if (!existsSync(join(BUILD, name))) symlinkSync(join("..", name), join(BUILD, name));
  }
  await build({
    cwd: ROOT,
    input: Object.fromEntries(PROGRAMS.map((source) => [source.replace(/\.ts$/, ""), source])),
    platform: "node",
    transform: { target: "node20" }, // Of package.json.
    // Packages, but for what the compiler itself adds for that target.
    external: (id) => /^[^./\0]/.test(id) && !id.startsWith("@oxc-project/"),
    plugins: [placed],
    logLevel: "warn",
    output: {
      dir: BUILD,
      format: "esm",
      entryFileNames: "[name].js",
      chunkFileNames: "shared/[name]-[hash].js",
    },
  });
}

/** The compiled form of a source. */
export const program = (source: Program): string => compiled(source);
