import { quoteIdentifier, quoteTable, type TableName } from "../../../base/identifier.ts";
import type { Connection, Queryable } from "../../../db/database.ts";
import { statement } from "../../../db/statement.ts";

const TABLE = `relation AS MATERIALIZED (
     SELECT one.*, space.nspname
       FROM pg_class AS one
       JOIN pg_namespace AS space ON space.oid = one.relnamespace
      WHERE space.nspname = $1 AND one.relname = $2
   )`;

// Indexes and constraints are made afterwards, because LIKE gives them other names.
const CREATE = statement(
  "shadow_ddl_create",
  `WITH ${TABLE}
   SELECT format(
            'CREATE %s TABLE %I.%I (LIKE %I.%I INCLUDING ALL '
              || 'EXCLUDING INDEXES EXCLUDING STATISTICS)%s',
            CASE WHEN relpersistence = 'u' THEN 'UNLOGGED' ELSE '' END,
            $3::text, relname, nspname, relname,
            (SELECT ' WITH (' || string_agg(
                      format('%s=%L', split_part(one, '=', 1), substr(one, strpos(one, '=') + 1)),
                      ', ') || ')'
               FROM unnest(reloptions) AS one)) AS ddl
     FROM relation`,
);

// LIKE makes sequences for identity columns, but copies of serial columns would draw from the
// sequence of the live table, which goes when that is dropped.
const SEQUENCES = statement(
  "shadow_ddl_sequences",
  `WITH ${TABLE}, own AS (
     SELECT relation.relname, sequence.oid, sequence.relname AS sequence_name, attname, facts.*
       FROM relation
       JOIN pg_depend AS link
         ON link.refclassid = 'pg_class'::regclass AND link.refobjid = relation.oid
        AND link.classid = 'pg_class'::regclass AND link.deptype = 'a'
       JOIN pg_class AS sequence ON sequence.oid = link.objid AND sequence.relkind = 'S'
       JOIN pg_sequence AS facts ON facts.seqrelid = sequence.oid
       JOIN pg_attribute ON attrelid = relation.oid AND attnum = link.refobjsubid
       JOIN pg_attrdef ON adrelid = relation.oid AND adnum = attnum
   )
   SELECT step.ddl
     FROM own, LATERAL (VALUES
       (1, format('CREATE SEQUENCE %I.%I AS %s INCREMENT BY %s MINVALUE %s MAXVALUE %s '
                    || 'START WITH %s CACHE %s %s',
                  $3::text, sequence_name, format_type(seqtypid, NULL), seqincrement,
                  seqmin, seqmax, seqstart, seqcache,
                  CASE WHEN seqcycle THEN 'CYCLE' ELSE 'NO CYCLE' END)),
       (2, format('ALTER TABLE %I.%I ALTER COLUMN %I SET DEFAULT nextval(%L)',
                  $3::text, relname, attname, format('%I.%I', $3::text, sequence_name))),
       (3, format('ALTER SEQUENCE %I.%I OWNED BY %I.%I.%I',
                  $3::text, sequence_name, $3::text, relname, attname))
     ) AS step(place, ddl)
    ORDER BY sequence_name, step.place`,
);

// With the live schema alone in the search path, what is in it is told without a schema, and so is
// found among the copies when it is run with those first.
const CONSTRAINTS = statement(
  "shadow_ddl_constraints",
  `WITH ${TABLE}
   SELECT format('ALTER TABLE %I.%I ADD CONSTRAINT %I %s',
                 $3::text, relname, conname, pg_get_constraintdef(one.oid)) AS ddl
     FROM relation
     JOIN pg_constraint AS one ON conrelid = relation.oid
    WHERE contype = ANY($4::"char"[])
    ORDER BY contype, conname`,
);

const INDEXES = statement(
  "shadow_ddl_indexes",
  `WITH ${TABLE}
   SELECT pg_get_indexdef(indexrelid, 0, true) AS ddl
     FROM relation
     JOIN pg_index ON indrelid = relation.oid AND indisvalid
    WHERE $3::text IS NOT NULL
      AND NOT EXISTS (
            SELECT FROM pg_constraint
             WHERE conindid = indexrelid AND contype IN ('p', 'u', 'x'))
    ORDER BY indexrelid`,
);

const GRANTS = statement(
  "shadow_ddl_grants",
  `WITH ${TABLE}, copy AS MATERIALIZED (
     SELECT one.oid, one.relowner
       FROM pg_class AS one
       JOIN pg_namespace AS space ON space.oid = one.relnamespace
      WHERE space.nspname = $3::text AND one.relname = $2
   ), given AS (
     SELECT 'TABLE' AS kind, relname AS name, '' AS columns, one.*, relowner
       FROM relation, aclexplode(relacl) AS one
      UNION ALL
     SELECT 'TABLE', relname, format('(%I)', attname), one.*, relowner
       FROM relation
       JOIN pg_attribute ON attrelid = relation.oid AND NOT attisdropped,
            aclexplode(attacl) AS one
      UNION ALL
     SELECT 'SEQUENCE', sequence.relname, '', one.*, relation.relowner
       FROM relation
       JOIN pg_depend AS link
         ON link.refclassid = 'pg_class'::regclass AND link.refobjid = relation.oid
        AND link.classid = 'pg_class'::regclass AND link.deptype = 'a'
       JOIN pg_class AS sequence ON sequence.oid = link.objid AND sequence.relkind = 'S',
            aclexplode(sequence.relacl) AS one
   ), told AS (
     SELECT *, CASE WHEN grantee = 0 THEN 'PUBLIC'
                    ELSE quote_ident(pg_get_userbyid(grantee)) END AS whom
       FROM given
      WHERE grantee <> relowner
   )
   SELECT ddl
     FROM (SELECT 1 AS place, format('GRANT USAGE ON SCHEMA %I TO %s', $3::text, whom) AS ddl
             FROM told
            UNION
           SELECT 2, format('GRANT %s %s ON %s %I.%I TO %s%s', privilege_type, columns, kind,
                            $3::text, name, whom,
                            CASE WHEN is_grantable THEN ' WITH GRANT OPTION' ELSE '' END)
             FROM told
            UNION ALL
           SELECT step.place, step.ddl
             FROM relation, copy, LATERAL (VALUES
               (3, format('GRANT USAGE, CREATE ON SCHEMA %I TO %I',
                          $3::text, pg_get_userbyid(relation.relowner))),
               (4, format('ALTER TABLE %I.%I OWNER TO %I',
                          $3::text, relname, pg_get_userbyid(relation.relowner)))
             ) AS step(place, ddl)
            WHERE copy.relowner <> relation.relowner) AS all_of_it
    ORDER BY place, ddl`,
);

const SEARCH_PATH = statement("shadow_search_path", "SELECT set_config('search_path', $1, true)");

async function searchIn(tx: Queryable, ...schemas: readonly string[]): Promise<void> {
  await tx.query(SEARCH_PATH, [schemas.map(quoteIdentifier).join(", ")]);
}

async function runAll(tx: Connection, steps: readonly { readonly ddl: string }[]): Promise<void> {
  for (const { ddl } of steps) await tx.client.query(ddl);
}

export async function createShadowSchema(tx: Connection, schema: string): Promise<void> {
  await tx.client.query(`CREATE SCHEMA ${quoteIdentifier(schema)}`);
}

/** An empty copy with everything but foreign keys. Changes the search path of the transaction. */
export async function createShadowTable(
  tx: Connection,
  live: TableName,
  schema: string,
): Promise<void> {
  const values = [live.schema, live.table, schema];
  await runAll(tx, await tx.query(CREATE, values));
  await runAll(tx, await tx.query(SEQUENCES, values));
  await searchIn(tx, live.schema);
  const constraints = await tx.query<{ ddl: string }>(CONSTRAINTS, [...values, ["p", "u", "x"]]);
  const indexes = await tx.query<{ ddl: string }>(INDEXES, values);
  await searchIn(tx, schema, live.schema);
  await runAll(tx, [...constraints, ...indexes]);
}

/** Once all copies are there: foreign keys between the tables hold between the copies. */
export async function createShadowKeys(
  tx: Connection,
  live: TableName,
  schema: string,
): Promise<void> {
  await searchIn(tx, live.schema);
  const keys = await tx.query<{ ddl: string }>(CONSTRAINTS, [
    live.schema,
    live.table,
    schema,
    ["f"],
  ]);
  await searchIn(tx, schema, live.schema);
  await runAll(tx, keys);
}

/** Owner and privileges, as they are now. Last, because they may be taken from who makes it. */
export async function copyGrants(tx: Connection, live: TableName, schema: string): Promise<void> {
  await runAll(tx, await tx.query(GRANTS, [live.schema, live.table, schema]));
}

const CROSSED = statement(
  "shadow_keys_crossed",
  `SELECT format('%I of %I', conname, mine.relname) AS key
     FROM pg_constraint
     JOIN pg_class AS mine ON mine.oid = conrelid
     JOIN pg_namespace AS space ON space.oid = mine.relnamespace
     JOIN pg_class AS other ON other.oid = confrelid
     JOIN pg_namespace AS other_space ON other_space.oid = other.relnamespace
     JOIN unnest($1::text[], $2::text[]) AS one(schema_name, name)
       ON one.schema_name = other_space.nspname AND one.name = other.relname
    WHERE space.nspname = $3 AND contype = 'f'`,
);

/** Foreign keys of copies that lead to live tables: between declared tables of two schemas. */
export async function readCrossedKeys(
  tx: Queryable,
  tables: readonly TableName[],
  schema: string,
): Promise<string[]> {
  const rows = await tx.query<{ key: string }>(CROSSED, [
    tables.map((one) => one.schema),
    tables.map((one) => one.table),
    schema,
  ]);
  return rows.map((row) => row.key);
}

export async function moveTable(tx: Connection, from: TableName, to: string): Promise<void> {
  await tx.client.query(`ALTER TABLE ${quoteTable(from)} SET SCHEMA ${quoteIdentifier(to)}`);
}

/** Nobody reads or writes them until the transaction ends. */
export async function lockTables(tx: Connection, tables: readonly TableName[]): Promise<void> {
  await tx.client.query(`LOCK TABLE ${tables.map(quoteTable).join(", ")} IN ACCESS EXCLUSIVE MODE`);
}

/** All in one statement, so that foreign keys between them do not matter. */
export async function dropTables(tx: Connection, tables: readonly TableName[]): Promise<void> {
  await tx.client.query(`DROP TABLE ${tables.map(quoteTable).join(", ")}`);
}

export async function dropSchema(tx: Connection, schema: string): Promise<void> {
  await tx.client.query(`DROP SCHEMA ${quoteIdentifier(schema)}`);
}

export async function analyzeTables(db: Connection, tables: readonly TableName[]): Promise<void> {
  await db.client.query(`ANALYZE ${tables.map(quoteTable).join(", ")}`);
}

export async function hasRows(db: Connection, table: TableName): Promise<boolean> {
  const { rows } = await db.client.query(`SELECT FROM ${quoteTable(table)} LIMIT 1`);
  return rows.length > 0;
}
