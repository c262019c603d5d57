import { quoteIdentifier, quoteTable, type TableName } from "../../../base/identifier.ts";
import type { Connection } from "../../../db/database.ts";
import { statement } from "../../../db/statement.ts";

/** One snapshot for everything that follows, on a connection of its own. */
export async function beginSnapshot(db: Connection): Promise<void> {
  await db.client.query("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY");
}

export async function endSnapshot(db: Connection): Promise<void> {
  await db.client.query("ROLLBACK");
}

const TIMEOUT = statement("compare_timeout", "SELECT set_config('statement_timeout', $1, true)");

/** For each statement that follows in the transaction. */
export async function limitStatements(tx: Connection, ms: number): Promise<void> {
  await tx.query(TIMEOUT, [`${Math.max(1, Math.round(ms))}ms`]);
}

const SHAPE = statement(
  "compare_shape",
  `SELECT attname AS name,
          COALESCE(attnum = ANY(indkey), FALSE) AS is_key,
          attidentity <> '' OR EXISTS (
            SELECT FROM pg_attrdef
             WHERE adrelid = attrelid AND adnum = attnum
               AND pg_get_expr(adbin, adrelid) LIKE 'nextval(%') AS is_number
     FROM pg_attribute
     JOIN pg_class AS relation ON relation.oid = attrelid
     JOIN pg_namespace AS space ON space.oid = relation.relnamespace
     LEFT JOIN pg_index ON indrelid = attrelid AND indisprimary
    WHERE space.nspname = $1 AND relation.relname = $2 AND attnum > 0 AND NOT attisdropped
    ORDER BY array_position(indkey::int2[], attnum), attnum`,
);

export interface ColumnShape {
  readonly name: string;
  /** Part of the primary key; these come first, in its order. */
  readonly isKey: boolean;
  /** Drawn from a sequence. */
  readonly isNumber: boolean;
}

export async function readShape(db: Connection, table: TableName): Promise<ColumnShape[]> {
  const values = [table.schema, table.table];
  const rows = await db.query<{ name: string; is_key: boolean; is_number: boolean }>(SHAPE, values);
  return rows.map((row) => ({ name: row.name, isKey: row.is_key, isNumber: row.is_number }));
}

export async function countRows(db: Connection, table: TableName): Promise<number> {
  const { rows } = await db.client.query<{ count: string }>(
    `SELECT count(*) FROM ${quoteTable(table)}`,
  );
  return Number(rows[0]?.count ?? 0);
}

/** Two tables of one shape, and what of them is compared. */
export interface Comparing {
  readonly live: TableName;
  readonly rebuilt: TableName;
  readonly key: readonly string[];
  readonly ignore: readonly string[];
  /** Of so many keys one is looked at, the same on both sides. */
  readonly oneOf: number;
}

// A hash of the key chooses, so that both sides look at the same rows.
function side(table: TableName, key: string, isSampled: boolean): string {
  const slice = isSampled
    ? `WHERE (hashtextextended(ROW(${key})::text, 0) & 9223372036854775807) % $2 = 0`
    : "WHERE $2::bigint > 0";
  return `SELECT ${key},
                 to_jsonb(tidemill_row) - $1::text[] AS tidemill_body,
                 TRUE AS tidemill_there
            FROM ${quoteTable(table)} AS tidemill_row ${slice}`;
}

function joined({ live, rebuilt, key, oneOf }: Comparing): string {
  const columns = key.map(quoteIdentifier).join(", ");
  const isSampled = oneOf > 1;
  return `(${side(live, columns, isSampled)}) AS live
     FULL JOIN (${side(rebuilt, columns, isSampled)}) AS rebuilt USING (${columns})
     WHERE live.tidemill_body IS DISTINCT FROM rebuilt.tidemill_body`;
}

export interface DifferenceCounts {
  readonly missing: number;
  readonly extra: number;
  readonly different: number;
}

export async function countDifferences(
  db: Connection,
  comparing: Comparing,
): Promise<DifferenceCounts> {
  const { rows } = await db.client.query<Record<keyof DifferenceCounts, string>>(
    `SELECT count(*) FILTER (WHERE rebuilt.tidemill_there IS NULL) AS missing,
            count(*) FILTER (WHERE live.tidemill_there IS NULL) AS extra,
            count(*) FILTER (WHERE live.tidemill_there AND rebuilt.tidemill_there) AS different
       FROM ${joined(comparing)}`,
    [[...comparing.ignore], comparing.oneOf],
  );
  const [row] = rows;
  return {
    missing: Number(row?.missing ?? 0),
    extra: Number(row?.extra ?? 0),
    different: Number(row?.different ?? 0),
  };
}

export interface RowDifference {
  /** Missing in the rebuilt table, extra there, or there with other contents. */
  readonly kind: "missing" | "extra" | "different";
  /** JSON of the key, and of the row on either side; cut where it is long. */
  readonly key: string;
  readonly live: string | undefined;
  readonly rebuilt: string | undefined;
}

const EXAMPLE_CHARACTERS = 1_000;

export async function readDifferingRows(
  db: Connection,
  comparing: Comparing,
  countMax: number,
): Promise<RowDifference[]> {
  const columns = comparing.key.map(quoteIdentifier).join(", ");
  const { rows } = await db.client.query<{
    kind: RowDifference["kind"];
    key: string;
    live: string | null;
    rebuilt: string | null;
  }>(
    `SELECT CASE WHEN rebuilt.tidemill_there IS NULL THEN 'missing'
                 WHEN live.tidemill_there IS NULL THEN 'extra'
                 ELSE 'different' END AS kind,
            left(jsonb_build_array(${columns})::text, ${EXAMPLE_CHARACTERS}) AS key,
            left(live.tidemill_body::text, ${EXAMPLE_CHARACTERS}) AS live,
            left(rebuilt.tidemill_body::text, ${EXAMPLE_CHARACTERS}) AS rebuilt
       FROM ${joined(comparing)}
      LIMIT $3`,
    [[...comparing.ignore], comparing.oneOf, countMax],
  );
  return rows.map((row) => ({
    kind: row.kind,
    key: row.key,
    live: row.live ?? undefined,
    rebuilt: row.rebuilt ?? undefined,
  }));
}
