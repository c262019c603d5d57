import { chmodSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestProject } from "vitest/node";
import { startEmbedded } from "../../src/embedded/launcher.ts";

declare module "vitest" {
  interface ProvidedContext {
    databaseUrl: string;
  }
}

/** One real PostgreSQL for all test files; each test makes its own schema in it. */
export default async function setup(project: TestProject): Promise<(() => Promise<void>) | void> {
  const given = process.env["DATABASE_URL"];
  if (given) {
    project.provide("databaseUrl", given);
    return;
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
    },
  });
  project.provide("databaseUrl", server.url);
  return async () => {
    await server.stop("immediate");
    rmSync(folder, { recursive: true, force: true });
  };
}
