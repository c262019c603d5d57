import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

/** What is run as a process of its own. */
export interface Program {
  readonly command: string;
  readonly args: readonly string[];
}

const PEERS = new URL("../peers/", import.meta.url);

/** The program of a peer in `bench/peers`. */
export const peerProgram = (file: string): Program => modernProgram(new URL(file, PEERS));

/**
 * Our own, as JavaScript, which is what users run: a Node that strips types itself needs 15 MB for
 * that, and the most memory that a worker ever held is a figure. `npm run bench` compiles it.
 *
 * @param file from the root of the project, without an ending
 */
export const ownProgram = (file: string): Program =>
  modernProgram(new URL(`../dist/${file}.js`, import.meta.url));

/** All systems run under the newer Node that the peers need. */
export function modernProgram(file: URL): Program {
  return {
    command: join(installed("node22"), "bin", "node"),
    args: ["--disable-warning=ExperimentalWarning", fileURLToPath(file)],
  };
}

export function peerVersion(name: string): string {
  const manifest = readFileSync(join(installed(name), "package.json"), "utf8");
  return (JSON.parse(manifest) as { version: string }).version;
}

/** Not by `require.resolve`: most of these packages do not export their package.json. */
function installed(name: string): string {
  const places = createRequire(new URL("package.json", PEERS)).resolve.paths(name) ?? [];
  const found = places.find((place) => existsSync(join(place, name, "package.json")));
  if (found !== undefined) return join(found, name);
  throw new Error(`the peer's package "${name}" is missing; run: npm ci --prefix bench/peers`);
}
