import { chmodSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import pg from "pg";
import type { TestProject } from "vitest/node";
import { startEmbedded } from "../../src/embedded/launcher.ts";
import { Tidemill } from "../../src/index.ts";
import { buildPrograms } from "./programs.ts";

declare module "vitest" {
  interface ProvidedContext {
    databaseUrl: string;
    templateDatabase: string;
  }
}

/** One real PostgreSQL for all test files; each test makes its own schema in it. */
export default async function setup(project: TestProject): Promise<(() => Promise<void>) | void> {
  buildPrograms();
  const given = process.env["DATABASE_URL"];
  if (given) {
    const drop = await makeTemplate(project, given);
    return drop;
  }
  const folder = mkdtempSync(join(tmpdir(), "tidemill-test-"));
  chmodSync(folder, 0o755); // As root the server runs as another user.
  const installation = process.env["TIDEMILL_TEST_POSTGRES"];
  const server = await startEmbedded({
    dataDir: join(folder, "data"),
    ...(installation === undefined ? {} : { installation }),
    settings: {
      max_connections: "500",
      max_prepared_transactions: "20",
      shared_buffers: "256MB",
      deadlock_timeout: "200ms",
      // Hundreds of databases come and go. Tests that crash a server start one of their own.
      fsync: "off",
      full_page_writes: "off",
    },
  });
  await makeTemplate(project, server.url);
  return async () => {
    await server.stop("immediate");
    rmSync(folder, { recursive: true, force: true });
  };
}

/** A migrated database that each test clones, which is quicker than migrating each. */
async function makeTemplate(project: TestProject, server: string): Promise<() => Promise<void>> {
  const name = `tidemill_template_${process.pid}`;
  const run = async (sql: string): Promise<void> => {
    const client = new pg.Client({ connectionString: server });
    await client.connect();
    try {
      await client.query(sql);
    } finally {
      await client.end();
    }
  };
  await run(`CREATE DATABASE ${name}`);
  const url = new URL(server);
  url.pathname = `/${name}`;
  await Tidemill.migrate(url.href);
  project.provide("databaseUrl", server);
  project.provide("templateDatabase", name);
  return async () => await run(`DROP DATABASE ${name}`);
}
