import { randomBytes } from "node:crypto";
import pg from "pg";
import { afterEach, inject } from "vitest";
import { type ConnectOptions, Tidemill } from "../../src/index.ts";

/** A database of its own, migrated, with whatever a test opened closed behind it. */
export interface TestDatabase {
  readonly url: string;
  /** For looking at tables and for hand-driven transactions. */
  readonly pool: pg.Pool;
  connect(options?: ConnectOptions): Promise<Tidemill>;
  /** A session of its own, for transactions that interleave. */
  session(): Promise<pg.Client>;
}

const cleanups: (() => Promise<unknown>)[] = [];

/** Runs after the test, last added first. */
export function onCleanup(cleanup: () => Promise<unknown>): void {
  cleanups.push(cleanup);
}

afterEach(async () => {
  const failures: unknown[] = [];
  for (const cleanup of cleanups.splice(0).toReversed()) {
    await cleanup().catch((error: unknown) => failures.push(error)); // The others run all the same.
  }
  if (failures.length > 0) throw new AggregateError(failures, "a cleanup failed");
});

export interface TestDatabaseOptions {
  /** Cloned from the migrated template. Defaults to true. */
  readonly migrated?: boolean;
  /** The server. Defaults to the suite's own. */
  readonly server?: string;
}

export async function testDatabase(options: TestDatabaseOptions = {}): Promise<TestDatabase> {
  const server = options.server ?? inject("databaseUrl");
  const name = `test_${randomBytes(6).toString("hex")}`;
  const isMigrated = options.migrated !== false;
  const isCloned = isMigrated && options.server === undefined;
  const template = isCloned ? ` TEMPLATE ${inject("templateDatabase")}` : "";
  await withClient(server, (client) => client.query(`CREATE DATABASE ${name}${template}`));
  onCleanup(() =>
    withClient(server, (client) => client.query(`DROP DATABASE IF EXISTS ${name} WITH (FORCE)`)),
  );
  const url = withDatabase(server, name);
  if (isMigrated && !isCloned) await Tidemill.migrate(url);
  const pool = new pg.Pool({ connectionString: url, max: 5 });
  pool.on("error", () => {});
  onCleanup(() => pool.end());
  return {
    url,
    pool,
    async connect(connectOptions) {
      const mill = await Tidemill.connect(url, connectOptions);
      onCleanup(() => mill.close());
      return mill;
    },
    async session() {
      const client = new pg.Client({ connectionString: url });
      client.on("error", () => {});
      await client.connect();
      onCleanup(() => client.end().catch(() => {}));
      return client;
    },
  };
}

export function withDatabase(server: string, name: string): string {
  const url = new URL(server);
  url.pathname = `/${name}`;
  return url.href;
}

async function withClient<T>(url: string, work: (client: pg.Client) => Promise<T>): Promise<T> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    return await work(client);
  } finally {
    await client.end();
  }
}
