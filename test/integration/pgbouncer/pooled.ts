import { afterAll, beforeAll, inject } from "vitest";
import { type ConnectOptions, Tidemill } from "../../../src/index.ts";
import { onCleanup, type TestDatabase } from "../../support/database.ts";
import { type PgBouncer, startPgBouncer, whyNoPgBouncer } from "../../support/pgbouncer.ts";

/** Connections to the server, for each database. */
export const POOL_SIZE = 4;

export interface Pooled {
  /** Why the tests of the file cannot run here. */
  readonly missing: string | undefined;
  readonly pooler: () => PgBouncer;
  readonly connect: (database: TestDatabase, options?: ConnectOptions) => Promise<Tidemill>;
}

/** One pooler in transaction mode before the suite's server, for all tests of a file. */
export function pooledSuite(settings: Readonly<Record<string, string>> = {}): Pooled {
  const missing = whyNoPgBouncer();
  let running: PgBouncer | undefined;
  beforeAll(async () => {
    if (missing !== undefined) return;
    const size = { default_pool_size: String(POOL_SIZE) };
    running = await startPgBouncer(inject("databaseUrl"), { ...size, ...settings });
  });
  afterAll(async () => {
    await running?.stop();
  });
  const pooler = (): PgBouncer => {
    if (running === undefined) throw new Error("no pooler");
    return running;
  };
  return {
    missing,
    pooler,
    async connect(database, options) {
      const mill = await Tidemill.connect(pooler().through(database.url), options);
      onCleanup(() => mill.close());
      return mill;
    },
  };
}
