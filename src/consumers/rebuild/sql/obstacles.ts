import type { TableName } from "../../../base/identifier.ts";
import type { Queryable } from "../../../db/database.ts";
import { statement } from "../../../db/statement.ts";

const DECLARED = `declared AS MATERIALIZED (
     SELECT relation.*, format('%I.%I', space.nspname, relation.relname) AS label
       FROM unnest($1::text[], $2::text[]) AS one(schema_name, name)
       JOIN pg_namespace AS space ON space.nspname = one.schema_name
       JOIN pg_class AS relation
         ON relation.relnamespace = space.oid AND relation.relname = one.name
   )`;

// What is not copied, and what holds on to a table by its identity: after the swap it would still
// mean the old one. Parts of the tables themselves are neither.
const OBSTACLES = statement(
  "rebuild_obstacles",
  `WITH ${DECLARED}, used AS (
     SELECT DISTINCT declared.label,
            replace(pg_describe_object(link.classid, link.objid, 0), 'rule _RETURN on ', '')
              AS dependent
       FROM declared
       LEFT JOIN pg_type AS row_type ON row_type.oid = declared.reltype
       JOIN pg_depend AS link
         ON link.refclassid = 'pg_class'::regclass AND link.refobjid = declared.oid
         OR link.refclassid = 'pg_type'::regclass
            AND link.refobjid IN (row_type.oid, row_type.typarray)
      WHERE link.deptype = 'n'
        AND NOT (link.classid = 'pg_class'::regclass
                 AND link.objid IN (SELECT oid FROM declared))
        AND NOT (link.classid = 'pg_constraint'::regclass
                 AND link.objid IN (SELECT one.oid FROM pg_constraint AS one
                                     WHERE one.conrelid IN (SELECT oid FROM declared)))
        AND NOT (link.classid = 'pg_rewrite'::regclass
                 AND link.objid IN (SELECT one.oid FROM pg_rewrite AS one
                                     WHERE one.ev_class IN (SELECT oid FROM declared)))
   )
   SELECT label, 'is not an ordinary table' AS why FROM declared
    WHERE relkind <> 'r' OR relispartition OR relpersistence = 't'
    UNION ALL
   SELECT label, 'is part of an inheritance tree' FROM declared
    WHERE EXISTS (SELECT FROM pg_inherits WHERE declared.oid IN (inhrelid, inhparent))
    UNION ALL
   SELECT label, 'has row-level security' FROM declared
    WHERE relrowsecurity OR EXISTS (SELECT FROM pg_policy WHERE polrelid = declared.oid)
    UNION ALL
   SELECT label, 'has the trigger ' || tgname FROM declared
     JOIN pg_trigger ON tgrelid = declared.oid AND NOT tgisinternal
    UNION ALL
   SELECT label, 'has the rule ' || rulename FROM declared
     JOIN pg_rewrite ON ev_class = declared.oid
    WHERE relkind = 'r'
    UNION ALL
   SELECT label, 'has the extended statistics ' || stxname FROM declared
     JOIN pg_statistic_ext ON stxrelid = declared.oid
    UNION ALL
   SELECT label, 'is in the publication ' || pubname FROM declared
     JOIN pg_publication_rel ON prrelid = declared.oid
     JOIN pg_publication ON pg_publication.oid = prpubid
    UNION ALL
   SELECT label, 'draws numbers of its own in an expression, in column ' || attname FROM declared
     JOIN pg_depend AS own
       ON own.refclassid = 'pg_class'::regclass AND own.refobjid = declared.oid
      AND own.classid = 'pg_class'::regclass AND own.deptype = 'a'
     JOIN pg_class AS sequence ON sequence.oid = own.objid AND sequence.relkind = 'S'
     JOIN pg_attribute ON attrelid = declared.oid AND attnum = own.refobjsubid
     JOIN pg_attrdef ON adrelid = declared.oid AND adnum = attnum
    WHERE pg_get_expr(adbin, adrelid) !~ '^nextval\\(''[^'']+''::regclass\\)$'
    UNION ALL
   SELECT label, 'is used by ' || dependent FROM used
    ORDER BY 1, 2
    LIMIT 20`,
);

const namesOf = (tables: readonly TableName[]): [string[], string[]] => [
  tables.map(({ schema }) => schema),
  tables.map(({ table }) => table),
];

/** Why these tables cannot change places with copies, in words; at most 20. */
export async function readObstacles(
  db: Queryable,
  tables: readonly TableName[],
): Promise<string[]> {
  const rows = await db.query<{ label: string; why: string }>(OBSTACLES, namesOf(tables));
  return rows.map((row) => `${row.label} ${row.why}`);
}

// Names of not-null constraints are left out: they are not the same in every version.
const DIFFERENCES = statement(
  "rebuild_differences",
  `WITH pair AS (
     SELECT one.name, live.oid AS live, other.oid AS other
       FROM unnest($1::text[], $2::text[]) AS one(schema_name, name)
       LEFT JOIN pg_namespace AS space ON space.nspname = one.schema_name
       LEFT JOIN pg_class AS live
         ON live.relnamespace = space.oid AND live.relname = one.name AND live.relkind = 'r'
       LEFT JOIN pg_namespace AS other_space ON other_space.nspname = $3
       LEFT JOIN pg_class AS other
         ON other.relnamespace = other_space.oid AND other.relname = one.name
        AND other.relkind = 'r'
   ), part AS (
     SELECT pair.name,
            format('column %s %s', attname, format_type(atttypid, atttypmod)) AS part,
            format('%s %s %s', attnotnull, attidentity, attgenerated) AS detail
       FROM pair
       JOIN pg_attribute ON attrelid IN (live, other) AND attnum > 0 AND NOT attisdropped
      UNION ALL
     SELECT pair.name, 'index ' || relation.relname, indisunique::text
       FROM pair
       JOIN pg_index ON indrelid IN (live, other) AND indisvalid
       JOIN pg_class AS relation ON relation.oid = indexrelid
      UNION ALL
     SELECT pair.name, 'constraint ' || conname, contype::text
       FROM pair
       JOIN pg_constraint ON conrelid IN (live, other) AND contype <> 'n'
   )
   SELECT name, NULL AS part FROM pair WHERE live IS NULL OR other IS NULL
    UNION ALL
   SELECT name, part FROM part GROUP BY name, part, detail HAVING count(*) = 1
    ORDER BY 1, 2
    LIMIT 20`,
);

/** What the tables have and those of the same names in `schema` have not, or the other way. */
export async function readDifferences(
  db: Queryable,
  tables: readonly TableName[],
  schema: string,
): Promise<string[]> {
  const values = [...namesOf(tables), schema];
  const rows = await db.query<{ name: string; part: string | null }>(DIFFERENCES, values);
  return rows.map(({ name, part }) => (part === null ? `${name} is gone` : `${part} of ${name}`));
}
