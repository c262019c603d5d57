import type { Queryable } from "../database.ts";
import { statement } from "../statement.ts";

const TABLE_EXISTS = statement("migrations_exist", "SELECT to_regclass($1) IS NOT NULL AS found");

export async function migrationsTableExists(db: Queryable, table: string): Promise<boolean> {
  const [row] = await db.query<{ found: boolean }>(TABLE_EXISTS, [table]);
  return row?.found === true;
}

const APPLIED = statement(
  "migrations_applied",
  "SELECT version, name, checksum FROM {schema}.migrations ORDER BY version",
);

export interface AppliedMigration {
  readonly version: number;
  readonly name: string;
  readonly checksum: string;
}

export async function readAppliedMigrations(db: Queryable): Promise<AppliedMigration[]> {
  return await db.query<AppliedMigration>(APPLIED);
}

const RECORD = statement(
  "migration_record",
  "INSERT INTO {schema}.migrations (version, name, checksum) VALUES ($1, $2, $3)",
);

export async function recordMigration(db: Queryable, applied: AppliedMigration): Promise<void> {
  await db.query(RECORD, [applied.version, applied.name, applied.checksum]);
}

// Held to the end of the transaction, so it is safe through a transaction pooler too.
const LOCK = statement(
  "migration_lock",
  "SELECT pg_advisory_xact_lock(hashtextextended('tidemill migrations ' || $1, 0))",
);

export async function lockMigrations(db: Queryable, schema: string): Promise<void> {
  await db.query(LOCK, [schema]);
}

const SETTINGS = statement("settings_read", "SELECT key, value FROM {schema}.settings");

export async function readSettings(db: Queryable): Promise<Map<string, string>> {
  const rows = await db.query<{ key: string; value: string }>(SETTINGS);
  return new Map(rows.map(({ key, value }) => [key, value]));
}

const SET = statement(
  "settings_write",
  `INSERT INTO {schema}.settings (key, value) VALUES ($1, $2)
       ON CONFLICT (key) DO UPDATE SET value = excluded.value`,
);

export async function writeSetting(db: Queryable, key: string, value: string): Promise<void> {
  await db.query(SET, [key, value]);
}

/** What must exist before the first migration can be recorded. */
export const BOOTSTRAP = `CREATE TABLE IF NOT EXISTS {schema}.migrations (
    version    INT PRIMARY KEY,
    name       TEXT NOT NULL,
    checksum   TEXT NOT NULL,
    applied_at TIMESTAMPTZ NOT NULL DEFAULT NOW()
);
CREATE TABLE IF NOT EXISTS {schema}.settings (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
);
`;

export const createSchema = (quotedSchema: string): string =>
  `CREATE SCHEMA IF NOT EXISTS ${quotedSchema};\n`;
