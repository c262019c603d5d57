import { silentLogger } from "../../src/base/log.ts";
import { Database, type DatabaseOptions } from "../../src/db/database.ts";
import { resolveNames } from "../../src/db/names.ts";

/** What the inside of the engine talks to, for tests that drive a part of it. They close it. */
export function engineDatabase(
  url: string,
  options: Partial<Omit<DatabaseOptions, "url">> = {},
): Database {
  return new Database({
    url,
    names: resolveNames(),
    logger: silentLogger,
    poolSize: 3,
    applicationName: "engine",
    preparedStatements: true,
    queryTimeoutMs: 10_000,
    connectTimeoutMs: 10_000,
    ...options,
  });
}
