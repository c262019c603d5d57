import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type pg from "pg";

/** One way to run tasks, as the benchmark sees it: programs for its roles, and its tables. */
export interface TaskSystem {
  readonly name: string;
  readonly version: string;
  /** How it was set up, for the settings of a figure. */
  readonly tuning: Readonly<Record<string, unknown>>;
  /** What it keeps of completed tasks. */
  readonly history: string;
  readonly program: Program;
  /** Whether its producers and workers speak to a server, which is a process of its own. */
  readonly isServed?: boolean;
  /** Where tasks wait. */
  readonly table: string;
  /**
   * Tasks that are durably completed. Who keeps no trace of them asks how many were `enqueued`,
   * for which the producer stands still until the read is done.
   */
  completed(client: pg.ClientBase, enqueued: () => Promise<number>): Promise<Reading>;
  /** Finds each task that was completed in what the system keeps of them, or throws. */
  verify?(client: pg.ClientBase, enqueued: () => Promise<number>): Promise<void>;
}

/** What is run for each role of a system; it speaks the protocol of `protocol.ts`. */
export interface Program {
  readonly command: string;
  readonly args: readonly string[];
}

/** One read of the store, with the server's clock and log position at its snapshot. */
export interface Reading {
  readonly completed: number;
  readonly atMs: number;
  readonly walBytes: number;
}

/** Reads `count(*)` of a query, named `n`, with the instant at which its snapshot was taken. */
export async function readCount(client: pg.ClientBase, from: string): Promise<Reading> {
  const { rows } = await client.query<{ n: string; at_ms: number; wal: string }>(
    `SELECT n, extract(epoch FROM now())::float8 * 1000 AS at_ms,
            pg_current_wal_insert_lsn() - '0/0'::pg_lsn AS wal
       FROM (SELECT count(*) AS n FROM ${from}) AS counted`,
  );
  const [row] = rows;
  if (row === undefined) throw new Error(`no count of ${from}`);
  return { completed: Number(row.n), atMs: row.at_ms, walBytes: Number(row.wal) };
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
