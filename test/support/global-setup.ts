import { createHash, createHmac, pbkdf2Sync, randomBytes } from "node:crypto";
import { chmodSync, mkdtempSync, rmSync } from "node:fs";
import { join } from "node:path";
import pg from "pg";
import type { TestProject } from "vitest/node";
import { startEmbedded } from "../../src/embedded/launcher.ts";
import { Tidemill } from "../../src/index.ts";
import { buildPrograms } from "./programs.ts";
import { runOnce } from "./run-once.ts";
import { scratch } from "./scratch.ts";

declare module "vitest" {
  interface ProvidedContext {
    databaseUrl: string;
    /** What CREATE DATABASE is told, to make one that is migrated. */
    templateClause: string;
  }
}

/** One real PostgreSQL for all test files; each test makes its own schema in it. */
export default async function setup(project: TestProject): Promise<(() => Promise<void>) | void> {
  await buildPrograms();
  const given = process.env["DATABASE_URL"];
  if (given) {
    const before = new Set(await wallRoles(given));
    const drop = await makeTemplate(project, given);
    return async () => {
      await drop();
      await dropWallRoles(given, before);
    };
  }
  const folder = mkdtempSync(join(scratch(), "tidemill-test-"));
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
  const remove = (): void => rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
  const abandon = (): void => {
    process.kill(server.pid, "SIGQUIT");
    remove();
  };
  process.once("exit", abandon); // A run that is interrupted tears nothing down.
  await lightenPassword(server.url);
  await makeTemplate(project, server.url, Number(server.version) >= 15 ? COPIED : "");
  return async () => {
    process.removeListener("exit", abandon);
    await server.stop("immediate");
    remove();
  };
}

// Blocks that pass through the buffers and the log cost more than twice as much as copied files.
const COPIED = " STRATEGY FILE_COPY";

/** A migrated database that each test clones, which is quicker than migrating each. */
async function makeTemplate(
  project: TestProject,
  server: string,
  strategy = "",
): Promise<() => Promise<void>> {
  const name = `tidemill_template_${process.pid}`;
  await runOnce(server, `CREATE DATABASE ${name}`);
  const url = new URL(server);
  url.pathname = `/${name}`;
  await Tidemill.migrate(url.href);
  project.provide("databaseUrl", server);
  project.provide("templateClause", `TEMPLATE ${name}${strategy}`);
  return async () => await runOnce(server, `DROP DATABASE ${name}`);
}

/** Roles outlive the databases whose migrations made them. */
async function dropWallRoles(server: string, before: ReadonlySet<string>): Promise<void> {
  for (const role of await wallRoles(server)) {
    // One that is in use belongs to another run.
    if (!before.has(role)) await runOnce(server, `DROP ROLE ${role}`).catch(() => {});
  }
}

async function wallRoles(server: string): Promise<string[]> {
  const client = new pg.Client({ connectionString: server });
  await client.connect();
  const { rows } = await client.query<{ role: string }>(
    "SELECT rolname AS role FROM pg_roles WHERE rolname LIKE 'tidemill\\_tenant\\_%'",
  );
  await client.end();
  return rows.map(({ role }) => role);
}

/**
 * A password is hashed 4,096 times, on both ends, for each of thousands of connections. This one is
 * stored as PostgreSQL would store it if it were told to hash once.
 */
async function lightenPassword(server: string): Promise<void> {
  const { username, password } = new URL(server);
  const salt = randomBytes(16);
  const salted = pbkdf2Sync(password, salt, 1, 32, "sha256");
  const keyed = (text: string): Buffer => createHmac("sha256", salted).update(text).digest();
  const stored = createHash("sha256").update(keyed("Client Key")).digest("base64");
  const verifier = `${salt.toString("base64")}$${stored}:${keyed("Server Key").toString("base64")}`;
  await runOnce(server, `ALTER ROLE ${username} PASSWORD 'SCRAM-SHA-256$1:${verifier}'`);
}
