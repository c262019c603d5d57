import { ConflictError, InvalidInputError } from "../../base/errors.ts";
import type { TableName } from "../../base/identifier.ts";
import { refuseUnknown, requireNumber } from "../../base/options.ts";
import type { Connection } from "../../db/database.ts";
import { type AlignContext, atOnePosition, type Sides } from "./align.ts";
import { shadowSchema } from "./names.ts";
import {
  beginSnapshot,
  countDifferences,
  countRows,
  endSnapshot,
  limitStatements,
  type RowDifference,
  readDifferingRows,
  readShape,
} from "./sql/compare.ts";
import { readPositions } from "./sql/holds.ts";
import type { Rebuild } from "./sql/rebuilds.ts";

export interface CompareOptions {
  /**
   * Columns that may differ, such as a time of writing. Numbers drawn from a sequence are left out
   * anyway, unless they are part of the primary key. Defaults to none.
   */
  readonly ignore?: readonly string[];
  /** Of larger tables a sample of about so many rows is compared. Defaults to 1,000,000. */
  readonly rowsMax?: number;
  /** For each statement. Defaults to 20,000. */
  readonly timeoutMs?: number;
}

export interface TableComparison {
  readonly table: string;
  readonly liveRows: number;
  readonly rebuiltRows: number;
  /** "counts": there is no primary key to compare by. */
  readonly compared: "all" | "sample" | "counts";
  /** Rows that only the live table has, that only the rebuilt one has, that are not the same. */
  readonly missing: number;
  readonly extra: number;
  readonly different: number;
  /** At most 10. */
  readonly examples: readonly RowDifference[];
}

export interface Comparison {
  /** Both sides had handled everything up to here, and nothing else. */
  readonly position: bigint;
  readonly isSame: boolean;
  readonly tables: readonly TableComparison[];
}

interface ResolvedOptions {
  readonly ignore: readonly string[];
  readonly rowsMax: number;
  readonly timeoutMs: number;
}

const EXAMPLES_MAX = 10;
const IGNORE_MAX = 100;

export function resolveCompareOptions(options: CompareOptions): ResolvedOptions {
  refuseUnknown("compare", options, ["ignore", "rowsMax", "timeoutMs"]);
  const { ignore = [], rowsMax = 1_000_000, timeoutMs = 20_000 } = options;
  if (!Array.isArray(ignore) || ignore.length > IGNORE_MAX) {
    throw new InvalidInputError(`ignore must be a list of at most ${IGNORE_MAX} columns`);
  }
  return {
    ignore,
    rowsMax: requireNumber("rowsMax", rowsMax, { min: 1, max: 1e9, integer: true }),
    timeoutMs: requireNumber("timeoutMs", timeoutMs, { min: 1, max: 3_600_000 }),
  };
}

/**
 * Compares the live tables with the rebuilt ones at one position. Both sides are held only until
 * one snapshot of the database shows them there; what follows reads that snapshot.
 */
export async function compareTables(
  context: AlignContext,
  rebuild: Rebuild,
  sides: Sides,
  options: ResolvedOptions,
): Promise<Comparison> {
  const { db } = context;
  const connection = await db.connect("compare", { timeoutMs: options.timeoutMs + 5_000 });
  try {
    const position = await atOnePosition(context, sides, async (wanted) => {
      await beginSnapshot(connection);
      const all = await readPositions(connection, [...sides.live, ...sides.rebuilt]);
      const late = all.find((one) => one.position !== wanted);
      if (late !== undefined) {
        const why = late.state === undefined ? "" : ` and ${late.state}`;
        throw new ConflictError(
          `${late.name} is at ${late.position}${why}, not at ${wanted}: there is no position at ` +
            "which both sides can be compared",
        );
      }
      return wanted;
    });
    await limitStatements(connection, options.timeoutMs);
    const tables: TableComparison[] = [];
    for (const live of rebuild.tables) {
      const rebuilt = { schema: shadowSchema(db.names, rebuild.id), table: live.table };
      tables.push(await compareTable(connection, live, rebuilt, options));
    }
    await endSnapshot(connection);
    return { position, isSame: tables.every(isSame), tables };
  } finally {
    await connection.close();
  }
}

function isSame(one: TableComparison): boolean {
  const { liveRows, rebuiltRows, missing, extra, different } = one;
  return liveRows === rebuiltRows && missing + extra + different === 0;
}

async function compareTable(
  db: Connection,
  live: TableName,
  rebuilt: TableName,
  options: ResolvedOptions,
): Promise<TableComparison> {
  const columns = await readShape(db, live);
  const [liveRows, rebuiltRows] = [await countRows(db, live), await countRows(db, rebuilt)];
  const table = `${live.schema}.${live.table}`;
  const key = columns.filter(({ isKey }) => isKey).map(({ name }) => name);
  if (key.length === 0) {
    const nothing = { missing: 0, extra: 0, different: 0, examples: [] };
    return { table, liveRows, rebuiltRows, compared: "counts", ...nothing };
  }
  const numbers = columns.filter((one) => one.isNumber && !one.isKey).map(({ name }) => name);
  const oneOf = Math.max(1, Math.ceil(Math.max(liveRows, rebuiltRows) / options.rowsMax));
  const comparing = { live, rebuilt, key, oneOf, ignore: [...options.ignore, ...numbers] };
  const counts = await countDifferences(db, comparing);
  const { missing, extra, different } = counts;
  const examples =
    missing + extra + different === 0 ? [] : await readDifferingRows(db, comparing, EXAMPLES_MAX);
  const compared = oneOf > 1 ? "sample" : "all";
  return { table, liveRows, rebuiltRows, compared, ...counts, examples };
}
