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
  const { rows, state, attempt = "attempt", worker, reason } = changed;
  const common = [state, attempt, worker, reason].filter(isColumn);
  return `
   feed AS (
     INSERT INTO {schema}.feed_changes (tenant, queue, state, attempt, worker_id, reason, ids)
     SELECT tenant, queue, ${state}, ${attempt}, ${worker ?? "NULL::uuid"},
            left(${reason ?? "NULL"}, 1000), array_agg(id)
       FROM (SELECT *, (row_number() OVER () - 1) / 1000 AS feed_part
               FROM ${rows}
              WHERE ${IS_HEARD}) AS told
      GROUP BY ${["tenant", "queue", "feed_part", ...common].join(", ")}
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

// From the lowest position on, so that whoever wants to go on from a place knows by one number
// whether everything behind it is still there.
const FORGET = statement(
  "feed_forget",
  `WITH old AS MATERIALIZED (
     SELECT max(position) AS last
       FROM (SELECT position, at
               FROM {schema}.feed_changes
              ORDER BY position
              LIMIT $2) AS first
      WHERE at < NOW() - make_interval(secs => $1::float8)
   ), gone AS (
     DELETE FROM {schema}.feed_changes
      WHERE position <= (SELECT last FROM old)
     RETURNING position
   ), era AS (
     UPDATE {schema}.feed_era
        SET floor = GREATEST(floor, old.last)
       FROM old
      WHERE old.last IS NOT NULL
   )
   SELECT count(*)::int AS count FROM gone`,
);

/** Removes what is older than that, at most so many rows. Returns how many they were. */
export async function forgetChanges(db: Queryable, seconds: number, max: number): Promise<number> {
  const [row] = await db.query<{ count: number }>(FORGET, [seconds, max]);
  return row?.count ?? 0;
}
