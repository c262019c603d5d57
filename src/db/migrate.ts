import { ConflictError, SchemaError } from "../base/errors.ts";
import { quoteIdentifier } from "../base/identifier.ts";
import type { Connection, Database, Queryable } from "./database.ts";
import {
  bootstrapSql,
  loadMigrations,
  type Migration,
  type Partitioning,
  resolvePartitioning,
  schemaVersion,
} from "./migrations.ts";
import {
  lockMigrations,
  migrationsTableExists,
  readAppliedMigrations,
  readSettings,
  recordMigration,
  writeSetting,
} from "./sql/migrations.ts";

export interface MigrateResult {
  readonly applied: readonly Migration[];
  readonly version: number;
}

export interface MigrateOptions {
  /** Only for a new log. Defaults to what is there, else to one table. */
  readonly partitioning?: Partitioning;
  /** Says what would be applied and applies nothing. */
  readonly dryRun?: boolean;
  readonly onMigration?: (migration: Migration) => void;
}

/**
 * Brings the schema to this version in one transaction, under a lock that ends with it: two
 * processes that migrate at once apply each migration once, and a failure leaves nothing behind.
 */
export async function migrate(db: Database, options: MigrateOptions): Promise<MigrateResult> {
  const pending = await pendingMigrations(db, db, options);
  if (options.dryRun === true || pending.length === 0) {
    return { applied: pending, version: schemaVersion() };
  }
  return await db.transaction(async (tx) => {
    await lockMigrations(tx, db.names.schema);
    // First, because DDL refreshes the caches of this session. A mere look would still miss tables
    // that another process made while this one waited for the lock, and apply everything twice.
    await tx.client.query(bootstrapSql(db.names));
    const migrations = await pendingMigrations(db, tx, options);
    for (const migration of migrations) {
      options.onMigration?.(migration);
      await tx.client.query(migration.sql);
      await recordMigration(tx, migration);
    }
    await keepSettings(tx, db, options.partitioning ?? resolvePartitioning());
    return { applied: migrations, version: schemaVersion() };
  });
}

async function pendingMigrations(
  db: Database,
  over: Queryable,
  options: MigrateOptions,
): Promise<Migration[]> {
  const known = loadMigrations(db.names, await layoutOf(db, over, options.partitioning));
  if (!(await isMigrated(db, over))) return known;
  await refuseOtherNames(db, over);
  const applied = new Map((await readAppliedMigrations(over)).map((one) => [one.version, one]));
  const newest = Math.max(0, ...applied.keys());
  if (newest > schemaVersion()) {
    throw new SchemaError(
      `schema ${db.names.schema} is at version ${newest}, newer than this program's ` +
        `${schemaVersion()}: upgrade tidemill`,
    );
  }
  for (const migration of known) {
    const before = applied.get(migration.version);
    if (before !== undefined && before.checksum !== migration.checksum) {
      throw new ConflictError(
        `migration ${migration.version} (${migration.name}) was applied with other contents; ` +
          "restore the released file",
      );
    }
  }
  return known.filter((migration) => !applied.has(migration.version));
}

/** The layout is chosen once: a log that exists keeps its own. */
async function layoutOf(
  db: Database,
  over: Queryable,
  wanted: Partitioning | undefined,
): Promise<Partitioning> {
  const stored = (await isMigrated(db, over))
    ? (await readSettings(over)).get("partitioning")
    : undefined;
  if (stored === undefined) return wanted ?? resolvePartitioning();
  const layout = JSON.parse(stored) as Partitioning;
  if (wanted !== undefined && wanted.strategy !== layout.strategy) {
    throw new SchemaError(
      `the log in schema ${db.names.schema} was made with partitioning "${layout.strategy}", ` +
        `which cannot be changed to "${wanted.strategy}"`,
    );
  }
  return layout;
}

async function keepSettings(
  tx: Connection,
  db: Database,
  partitioning: Partitioning,
): Promise<void> {
  const settings = await readSettings(tx);
  if (settings.has("names")) return;
  await writeSetting(tx, "names", db.names.fingerprint);
  await writeSetting(tx, "partitioning", JSON.stringify(partitioning));
}

async function isMigrated(db: Database, over: Queryable): Promise<boolean> {
  return await migrationsTableExists(over, `${quoteIdentifier(db.names.schema)}.migrations`);
}

async function refuseOtherNames(db: Database, over: Queryable): Promise<void> {
  const stored = (await readSettings(over)).get("names");
  if (stored !== undefined && stored !== db.names.fingerprint) {
    throw new SchemaError(
      `schema ${db.names.schema} was migrated for other table names (${stored}); ` +
        "use those names, or another schema for another cluster",
    );
  }
}

/** Refuses to start on a schema that is missing, older, newer or made for other table names. */
export async function assertMigrated(db: Database): Promise<Map<string, string>> {
  const { schema } = db.names;
  if (!(await isMigrated(db, db))) {
    throw new SchemaError(`schema ${schema} has no tidemill tables; run "tidemill migrate"`);
  }
  await refuseOtherNames(db, db);
  const applied = await readAppliedMigrations(db);
  const version = Math.max(0, ...applied.map((one) => one.version));
  const needed = schemaVersion();
  if (version < needed) {
    throw new SchemaError(
      `schema ${schema} is at version ${version} and this program needs ${needed}; ` +
        'run "tidemill migrate"',
    );
  }
  if (version > needed) {
    throw new SchemaError(
      `schema ${schema} is at version ${version}, newer than this program's ${needed}; ` +
        "upgrade tidemill",
    );
  }
  return await readSettings(db);
}
