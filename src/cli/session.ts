import type { Database } from "../db/database.ts";
import { assertMigrated } from "../db/migrate.ts";
import { openDatabase } from "../worker/connect.ts";
import { Tidemill } from "../worker/tidemill.ts";
import { connectOptions, type GlobalFlags, requireDatabaseUrl } from "./options.ts";

/** Connects as the flags say, and closes the connections whatever happens. */
export async function withTidemill<T>(
  flags: GlobalFlags,
  work: (mill: Tidemill) => Promise<T>,
): Promise<T> {
  const url = requireDatabaseUrl(flags);
  await using mill = await Tidemill.connect(url, { ...connectOptions(flags), poolSize: 2 });
  return await work(mill);
}

/** The same for what the server keeps in tables of its own, which the library does not show. */
export async function withDatabase<T>(
  flags: GlobalFlags,
  work: (db: Database) => Promise<T>,
): Promise<T> {
  const db = openDatabase(requireDatabaseUrl(flags), { ...connectOptions(flags), poolSize: 1 });
  try {
    await assertMigrated(db);
    return await work(db);
  } finally {
    await db.close();
  }
}
