import type { Queryable } from "../../../db/database.ts";
import { statement } from "../../../db/statement.ts";
import type { RebuildTarget } from "../target.ts";

// A loop that outlived its rebuild must not come here: without the copies, names without a schema
// would mean the live tables. The row stays as it is until the batch ends, because whoever changes
// it locks the assignments of the rebuild first.
const ENTER = statement(
  "rebuild_enter",
  `SELECT set_config(
            'search_path',
            concat_ws(', ', quote_ident($3), NULLIF(current_setting('search_path'), '')),
            true)
     FROM {schema}.consumer_rebuilds
    WHERE consumer_name = $1 AND id = $2 AND state = 'building'`,
);

export async function enterShadow(tx: Queryable, target: RebuildTarget): Promise<boolean> {
  const rows = await tx.query(ENTER, [target.consumer, target.id, target.schema]);
  return rows.length === 1;
}

// A transaction keeps the locks of everything it touched. Looking at other tables is fine, and so
// is locking their rows, as foreign keys do; our own statements of the batch do no more than that.
// What is told to the feed goes with something else, which is named first.
const STRAYS = statement(
  "rebuild_strays",
  `WITH live AS (
     SELECT relation.oid
       FROM {schema}.consumer_rebuilds AS rebuild,
            unnest(rebuild.table_schemas, rebuild.table_names) AS one(schema_name, name)
       JOIN pg_namespace AS space ON space.nspname = one.schema_name
       JOIN pg_class AS relation
         ON relation.relnamespace = space.oid AND relation.relname = one.name
      WHERE rebuild.consumer_name = $1
   )
   SELECT format('%I.%I', space.nspname, relation.relname) AS name,
          bool_or(relation.oid IN (SELECT oid FROM live)) AS is_live,
          bool_or(space.oid = '{schema}'::regnamespace
                  OR relation.oid IN ('{events}'::regclass, '{stream_heads}'::regclass)) AS is_ours
     FROM pg_locks AS lock
     JOIN pg_class AS relation ON relation.oid = lock.relation
     JOIN pg_namespace AS space ON space.oid = relation.relnamespace
    WHERE lock.pid = pg_backend_pid()
      AND lock.locktype = 'relation'
      AND lock.granted
      AND lock.database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND relation.relkind IN ('r', 'p')
      AND (relation.oid IN (SELECT oid FROM live)
           OR lock.mode NOT IN ('AccessShareLock', 'RowShareLock')
              AND space.nspname <> ALL (ARRAY[$2, 'pg_catalog', 'information_schema'])
              AND space.oid <> pg_my_temp_schema())
    GROUP BY space.nspname, relation.relname
    ORDER BY is_live DESC, bool_or(relation.relname = 'feed_changes'), name
    LIMIT 1`,
);

export interface StrayTable {
  readonly table: string;
  /** One of those that the copies are of. */
  readonly isLive: boolean;
  /** One of Tidemill's, such as the log. */
  readonly isOurs: boolean;
}

/** A table outside the copies that this transaction wrote, or a live one that it touched. */
export async function readStrayTables(tx: Queryable, target: RebuildTarget): Promise<StrayTable[]> {
  const values = [target.consumer, target.schema];
  const rows = await tx.query<{ name: string; is_live: boolean; is_ours: boolean }>(STRAYS, values);
  return rows.map((row) => ({ table: row.name, isLive: row.is_live, isOurs: row.is_ours }));
}
