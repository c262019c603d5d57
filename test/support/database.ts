import { randomBytes } from "node:crypto";
import pg from "pg";
import { inject } from "vitest";
import { type ConnectOptions, Tidemill } from "../../src/index.ts";
import { runOnce } from "./run-once.ts";

/** A database of its own, migrated, with whatever a test opened closed behind it. */
export interface TestDatabase {
  readonly url: string;
  /** For looking at tables and for hand-driven transactions. */
  readonly pool: pg.Pool;
  connect(options?: ConnectOptions): Promise<Tidemill>;
  /** A session of its own, for transactions that interleave. */
  session(): Promise<pg.Client>;
}

const cleanups: Record<"test" | "file", (() => Promise<unknown>)[]> = { test: [], file: [] };

/** Runs after the test, or after all of the file, last added first. */
export function onCleanup(cleanup: () => Promise<unknown>, until: "test" | "file" = "test"): void {
  cleanups[until].push(cleanup);
}

/** For test/support/each-file.ts, which says when. */
export async function cleanUp(after: "test" | "file"): Promise<void> {
  const failures: unknown[] = [];
  for (const cleanup of cleanups[after].splice(0).toReversed()) {
    await cleanup().catch((error: unknown) => failures.push(error)); // The others run all the same.
  }
  if (failures.length > 0) throw new AggregateError(failures, "a cleanup failed");
}

export interface TestDatabaseOptions {
  /** How long it lives. Defaults to "test". */
  readonly until?: "test" | "file";
  /** Cloned from the migrated template. Defaults to true. */
  readonly migrated?: boolean;
  /** The server. Defaults to the suite's own. */
  readonly server?: string;
}

export async function testDatabase(options: TestDatabaseOptions = {}): Promise<TestDatabase> {
  const server = options.server ?? inject("databaseUrl");
  const run = options.server === undefined ? runOnSuite : runOnce;
  const onEnd = (cleanup: () => Promise<unknown>): void => onCleanup(cleanup, options.until);
  const name = `test_${randomBytes(6).toString("hex")}`;
  const isMigrated = options.migrated !== false;
  const isCloned = isMigrated && options.server === undefined;
  const template = isCloned ? inject("templateClause") : "";
  await run(server, `CREATE DATABASE ${name} ${template}`);
  onEnd(() => run(server, `DROP DATABASE IF EXISTS ${name} WITH (FORCE)`));
  const url = withDatabase(server, name);
  if (isMigrated && !isCloned) await Tidemill.migrate(url);
  const pool = new pg.Pool({ connectionString: url, max: 5 });
  pool.on("error", () => {});
  onEnd(() => pool.end());
  return {
    url,
    pool,
    async connect(connectOptions) {
      const mill = await Tidemill.connect(url, connectOptions);
      onEnd(() => mill.close());
      return mill;
    },
    async session() {
      const client = new pg.Client({ connectionString: url });
      client.on("error", () => {});
      await client.connect();
      onEnd(() => client.end().catch(() => {}));
      return client;
    },
  };
}

export function withDatabase(server: string, name: string): string {
  const url = new URL(server);
  url.pathname = `/${name}`;
  return url.href;
}

// A process makes hundreds of databases; connecting for each costs as much as making it does.
let administrators: pg.Pool | undefined;

async function runOnSuite(server: string, sql: string): Promise<void> {
  if (administrators === undefined) {
    administrators = new pg.Pool({
      connectionString: server,
      max: 1,
      idleTimeoutMillis: 0,
      allowExitOnIdle: true, // It lasts as long as the process does.
    });
    administrators.on("error", () => {}); // It connects again.
  }
  await administrators.query(sql);
}
