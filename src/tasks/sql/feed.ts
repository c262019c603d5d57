import type { Queryable } from "../../db/database.ts";
import { statement } from "../../db/statement.ts";

// Whether somebody listens. Not judged by the snapshot of the statement, and asked only after the
// lock on the table of changes was taken: who found nobody there is waited for (ADR 13).
const IS_HEARD = `(SELECT last_value > date_part('epoch', clock_timestamp()) * 1000
                FROM {schema}.feed_listening)`;

/** What a statement changed: rows of tasks, and what became of all of them. */
export interface Changed {
  /** Has id, tenant and queue of each task. */
  readonly rows: string;
  readonly state: string;
  /** Defaults to the attempt of the rows. */
  readonly attempt?: string;
  /** Who holds the task, or held it until now. Defaults to nobody. */
  readonly worker?: string;
  /** Defaults to none. */
  readonly reason?: string;
  /** No more than one row: there is nothing to gather. */
  readonly isOne?: boolean;
}

/** A literal or a parameter is the same for all rows, and need not be compared. */
const isColumn = (expression: string | undefined): expression is string =>
  expression !== undefined && !/^['$\d]/.test(expression);

/**
 * Tells the feed, in the statement that makes the change: a part of a WITH, which does nothing
 * while nobody listens. Tasks that have everything else in common are one row, at most a thousand:
 * rows are read whole, whoever changes however many at once.
 */
export const tell = (changed: Changed): string => {
  const { rows, state, attempt = "attempt", worker, reason, isOne = false } = changed;
  const common = [state, attempt, worker, reason].filter(isColumn);
  const gathered = `
       FROM (SELECT *, (row_number() OVER () - 1) / 1000 AS feed_part
               FROM ${rows}
              WHERE ${IS_HEARD}) AS told
      GROUP BY ${["tenant", "queue", "feed_part", ...common].join(", ")}`;
  const alone = `
       FROM ${rows}
      WHERE ${IS_HEARD}`;
  return `
   feed AS (
     INSERT INTO {schema}.feed_changes (tenant, queue, state, attempt, worker_id, reason, ids)
     SELECT tenant, queue, ${state}, ${attempt}, ${worker ?? "NULL::uuid"},
            left(${reason ?? "NULL"}, 1000), ${isOne ? "ARRAY[id]" : "array_agg(id)"}
${(isOne ? alone : gathered).slice(1)}
   )`;
};

/** The same of packs: a row for each, however many tasks it has. */
export const tellOfPacks = ({ rows, state, attempt, worker }: Changed): string => `
   feed AS (
     INSERT INTO {schema}.feed_changes
            (tenant, queue, state, attempt, worker_id, first_id, last_id, ids)
     SELECT tenant, queue, ${state}, ${attempt ?? "1"}, ${worker ?? "NULL::uuid"}, id, last_id,
            CASE WHEN last_id - id >= cardinality(ids) THEN ids END
       FROM ${rows}
      WHERE ${IS_HEARD}
   )`;

// Every statement that tells the feed, or found nobody to tell, has this lock until its transaction
// ends, and took it before it asked and before it drew a position. Readable by every role.
const WRITERS = statement(
  "feed_writers",
  `SELECT DISTINCT lock.virtualtransaction AS writer
     FROM pg_locks AS lock
    WHERE lock.locktype = 'relation'
      AND lock.mode = 'RowExclusiveLock'
      AND lock.granted
      AND lock.pid IS DISTINCT FROM pg_backend_pid()
      AND lock.database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND lock.relation = '{schema}.feed_changes'::regclass`,
);

/** Transactions that may be writing to the feed, or may have found that nobody listens. */
export async function readFeedWriters(db: Queryable): Promise<Set<string>> {
  const rows = await db.query<{ writer: string }>(WRITERS);
  return new Set(rows.map((row) => row.writer));
}

const NEWEST = statement(
  "feed_newest",
  `SELECT COALESCE(pg_sequence_last_value('{schema}.feed_changes_position_seq'), 0)::text
            AS newest`,
);

/** The last position that was given to anybody. */
export async function readNewestChange(db: Queryable): Promise<bigint> {
  const [row] = await db.query<{ newest: string }>(NEWEST);
  return BigInt(row?.newest ?? 0);
}

/** Where somebody has looked, and in which era positions had that meaning. */
export interface Swept {
  readonly era: string;
  /** Nothing at or below it is there, nor will be. */
  readonly after: bigint;
}

// From the lowest position on, so that whoever wants to go on from a place knows by one number
// whether everything behind it is still there. Not from the beginning: what was removed while an
// old snapshot is open stays in the index, and would be walked over again every time. The floor of
// the era does not say where to begin, because rows of eras before it are below it.
const FORGET = statement(
  "feed_forget",
  `WITH start AS MATERIALIZED (
     SELECT max(era) AS era,
            COALESCE(max($4::bigint) FILTER (WHERE era = $3::text), 0) AS after
       FROM {schema}.feed_era
   ), first AS MATERIALIZED (
     SELECT position, at
       FROM {schema}.feed_changes
      WHERE position > (SELECT after FROM start)
      ORDER BY position
      LIMIT $2
   ), old AS MATERIALIZED (
     SELECT max(position) AS last
       FROM first
      WHERE at < NOW() - make_interval(secs => $1::float8)
   ), gone AS (
     DELETE FROM {schema}.feed_changes
      WHERE position > (SELECT after FROM start)
        AND position <= (SELECT last FROM old)
     RETURNING position
   ), moved AS (
     UPDATE {schema}.feed_era
        SET floor = GREATEST(floor, old.last)
       FROM old
      WHERE old.last IS NOT NULL
   )
   SELECT start.era, old.last::text AS last,
          (SELECT count(*)::int FROM gone) AS count,
          (SELECT min(position) FROM first WHERE position > COALESCE(old.last, 0))::text AS next
     FROM start, old`,
);

export interface Forgotten {
  readonly count: number;
  /** Undefined: there is none. */
  readonly era: string | undefined;
  /** The last that was removed. */
  readonly last: bigint | undefined;
  /** The first that was seen and stays. */
  readonly next: bigint | undefined;
}

/** Removes what is older than that, at most so many rows, behind where somebody looked before. */
export async function forgetChanges(
  db: Queryable,
  seconds: number,
  max: number,
  swept?: Swept,
): Promise<Forgotten> {
  type Row = Record<"era" | "last" | "next", string | null> & { readonly count: number };
  const values = [seconds, max, swept?.era ?? null, String(swept?.after ?? 0n)];
  const [row] = await db.query<Row>(FORGET, values);
  const position = (text: string | null | undefined): bigint | undefined =>
    text === null || text === undefined ? undefined : BigInt(text);
  return {
    count: row?.count ?? 0,
    era: row?.era ?? undefined,
    last: position(row?.last),
    next: position(row?.next),
  };
}
