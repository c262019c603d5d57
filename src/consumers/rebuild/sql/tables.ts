import type { Queryable } from "../../../db/database.ts";
import { statement } from "../../../db/statement.ts";
import type { DeclaredTable } from "../target.ts";

// In the order of names, as everything that several workers insert at once.
const REGISTER = statement(
  "consumer_tables_register",
  `WITH said AS MATERIALIZED (
     SELECT name, tables
       FROM json_to_recordset($1::text::json) AS one(name TEXT, tables TEXT[])
   ), gone AS (
     DELETE FROM {schema}.consumer_tables AS stored
      USING said
      WHERE stored.consumer_name = said.name AND cardinality(said.tables) = 0
   )
   INSERT INTO {schema}.consumer_tables AS stored (consumer_name, tables, search_path)
   SELECT name, tables, current_schemas(false)::text[]
     FROM said
    WHERE cardinality(tables) > 0
    ORDER BY name COLLATE "C"
       ON CONFLICT (consumer_name) DO UPDATE
      SET tables = excluded.tables, search_path = excluded.search_path, updated_at = NOW()
    WHERE (stored.tables, stored.search_path)
          IS DISTINCT FROM (excluded.tables, excluded.search_path)`,
);

/** What the consumers of a worker say they write. The newest word counts. */
export async function registerTables(
  tx: Queryable,
  consumers: readonly { readonly name: string; readonly tables?: readonly string[] }[],
): Promise<void> {
  const said = consumers.map(({ name, tables = [] }) => ({ name, tables }));
  await tx.query(REGISTER, [JSON.stringify(said)]);
}

const READ = statement(
  "consumer_tables_read",
  `SELECT consumer_name, tables, search_path
     FROM {schema}.consumer_tables
    ORDER BY consumer_name
      FOR UPDATE`,
);

export interface StoredTables {
  readonly consumer: string;
  readonly tables: readonly string[];
  readonly searchPath: readonly string[];
}

/** Of all consumers. Two that want to start a rebuild wait for each other here. */
export async function lockConsumerTables(tx: Queryable): Promise<StoredTables[]> {
  const rows = await tx.query<{
    consumer_name: string;
    tables: string[];
    search_path: string[];
  }>(READ);
  return rows.map((row) => ({
    consumer: row.consumer_name,
    tables: row.tables,
    searchPath: row.search_path,
  }));
}

const DECLARED = statement(
  "consumer_tables_declared",
  `SELECT consumer_name AS consumer, tables
     FROM {schema}.consumer_tables
    ORDER BY consumer_name COLLATE "C"`,
);

/** Consumers that say which tables they write. */
export async function readDeclaredTables(
  db: Queryable,
): Promise<{ readonly consumer: string; readonly tables: readonly string[] }[]> {
  return await db.query(DECLARED);
}

const RESOLVE = statement(
  "rebuild_resolve_tables",
  `SELECT one.name, found.schema_name
     FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS one(schema_name, name, place)
     LEFT JOIN LATERAL (
       SELECT space.nspname AS schema_name
         FROM pg_class AS relation
         JOIN pg_namespace AS space ON space.oid = relation.relnamespace
        WHERE relation.relname = one.name
          AND relation.relkind IN ('r', 'p', 'v', 'm', 'f')
          AND (space.nspname = one.schema_name
               OR one.schema_name IS NULL AND space.nspname = ANY($3::text[]))
        ORDER BY array_position($3::text[], space.nspname::text)
        LIMIT 1) AS found ON TRUE
    ORDER BY one.place`,
);

/** Where the tables are, in the order given; without a schema when there is no such table. */
export async function resolveTables(
  tx: Queryable,
  declared: readonly DeclaredTable[],
  searchPath: readonly string[],
): Promise<{ schema: string | undefined; table: string }[]> {
  const rows = await tx.query<{ name: string; schema_name: string | null }>(RESOLVE, [
    declared.map(({ schema }) => schema ?? null),
    declared.map(({ table }) => table),
    [...searchPath],
  ]);
  return rows.map((row) => ({ schema: row.schema_name ?? undefined, table: row.name }));
}
