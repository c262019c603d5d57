import type { Queryable } from "../../../db/database.ts";
import { statement } from "../../../db/statement.ts";
import type { StoredRow } from "../feed-row.ts";

const LISTEN = statement(
  "feed_listen",
  `SELECT era, settled::text AS settled, floor::text AS floor
     FROM {schema}.feed_listen($1::float8, $2::text, $3::bigint)`,
);

export interface Era {
  readonly era: string;
  /** No change behind it is missing. Undefined: nobody has proven anything. */
  readonly settled: bigint | undefined;
  /** What is at or below it cannot be read. */
  readonly floor: bigint;
}

/** Changes are written for so long from now. Says what was proven here, and hears of others. */
export async function listen(
  db: Queryable,
  seconds: number,
  proven?: { readonly era: string; readonly reached: bigint },
): Promise<Era> {
  const values = [seconds, proven?.era ?? null, proven === undefined ? null : `${proven.reached}`];
  const [row] = await db.query<{ era: string; settled: string | null; floor: string }>(
    LISTEN,
    values,
  );
  if (row === undefined) throw new Error("the database did not say which era it is");
  const { era, settled, floor } = row;
  return { era, settled: settled === null ? undefined : BigInt(settled), floor: BigInt(floor) };
}

// One snapshot: what was removed from the feed and what is left belong together. Rows with many
// tasks count as many.
const READ = statement(
  "feed_read",
  `SELECT era.floor::text AS floor, page.seen::int AS seen,
          page.position::text AS position, page.at, page.kind, page.tenant, page.queue, page.state,
          page.attempt, page.worker_id, page.reason, page.first_id::text AS first_id,
          page.last_id::text AS last_id, array_to_string(page.ids, ',') AS ids,
          page.data::text AS data
     FROM (SELECT floor FROM {schema}.feed_era WHERE era = $1) AS era
     LEFT JOIN LATERAL (
       SELECT sized.*
         FROM (SELECT one.*, count(*) OVER () AS seen,
                      sum(one.size) OVER (ORDER BY one.position) - one.size AS before
                 FROM (SELECT change.*, COALESCE(cardinality(change.ids),
                                                  change.last_id - change.first_id + 1, 1) AS size
                         FROM {schema}.feed_changes AS change
                        WHERE change.position > $2::bigint
                        ORDER BY change.position
                        LIMIT $3) AS one) AS sized
        WHERE sized.before < $4::bigint
     ) AS page ON TRUE
    ORDER BY page.position`,
);

export interface FeedPage {
  readonly floor: bigint;
  readonly rows: readonly StoredRow[];
  /** Whether there are more behind them. */
  readonly isCut: boolean;
}

const ROWS_MAX = 500;
/** More or less: rows are read whole. */
const CHANGES_MAX = 50_000;

/** What is visible behind a position. Undefined: that era is over. */
export async function readChanges(
  db: Queryable,
  era: string,
  after: bigint,
  changesMax = CHANGES_MAX,
): Promise<FeedPage | undefined> {
  const found = await db.query<StoredRow & { floor: string; seen: number | null }>(READ, [
    era,
    String(after),
    ROWS_MAX,
    changesMax,
  ]);
  const [first] = found;
  if (first === undefined) return undefined;
  const seen = first.seen ?? 0;
  const rows = seen === 0 ? [] : found;
  return { floor: BigInt(first.floor), rows, isCut: seen === ROWS_MAX || rows.length < seen };
}
