import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { mkdir, readdir, rename, rm } from "node:fs/promises";
import { createRequire } from "node:module";
import { join } from "node:path";
import { promisify } from "node:util";
import { FILES, ROOT } from "../support/tidy/repository.ts";

const run = promisify(execFile);
const BUILDS = join(ROOT, ".test-build");

/** Of everything that a build is made of: the packages, its sources, and those of the engine. */
function sourcesHash(): string {
  const hash = createHash("sha256");
  for (const file of FILES) {
    if (!/^(dashboard|src)\/|^[^/]+\.json$/.test(file)) continue;
    hash.update(`${file}\0`).update(readFileSync(join(ROOT, file)));
  }
  return hash.digest("hex").slice(0, 16);
}

/**
 * The folder of the dashboard, built once for all test files, and for all runs until something is
 * changed. Not in dist: other tests serve what lies there meanwhile.
 */
export async function buildDashboard(): Promise<string> {
  const name = `dashboard-${sourcesHash()}`;
  const folder = join(BUILDS, name);
  if (existsSync(folder)) return folder;
  await mkdir(BUILDS, { recursive: true });
  const older = (await readdir(BUILDS)).filter((one) => /^dashboard-[0-9a-f]{16}$/.test(one));
  for (const one of older) await rm(join(BUILDS, one), { recursive: true, force: true });
  const made = `${folder}.${process.pid}`;
  const vite = join(createRequire(import.meta.url).resolve("vite/package.json"), "../bin/vite.js");
  const args = [vite, "build", "dashboard", "--outDir", made, "--logLevel", "error"];
  const env = { ...process.env, NODE_ENV: "production" };
  await run(process.execPath, args, { cwd: ROOT, env });
  try {
    await rename(made, folder);
  } catch (error) {
    if (!existsSync(folder)) throw error;
    await rm(made, { recursive: true }); // Another test file was quicker.
  }
  return folder;
}
