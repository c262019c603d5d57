import type { FrontierHolder } from "../../../consumers/sql/frontier.ts";
import type { Queryable } from "../../../db/database.ts";
import { statement } from "../../../db/statement.ts";

// The locks by which writers are found (src/tasks/sql/feed.ts). Prepared transactions have no
// process, and are known by the lock on their own id.
const HOLDERS = statement(
  "feed_holders",
  `WITH holder AS MATERIALIZED (
     SELECT lock.pid, lock.virtualtransaction AS writer
       FROM pg_locks AS lock
      WHERE lock.locktype = 'relation'
        AND lock.mode = 'RowExclusiveLock'
        AND lock.granted
        AND lock.database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND lock.relation = '{schema}.feed_changes'::regclass
        AND lock.virtualtransaction = ANY ($1::text[])
   )
   SELECT activity.pid, activity.usename AS "user", activity.application_name AS application,
          activity.state, left(activity.query, 200) AS query,
          extract(epoch FROM clock_timestamp() - activity.xact_start)::float8 AS age
     FROM holder
     JOIN pg_stat_activity AS activity ON activity.pid = holder.pid
    UNION ALL
   SELECT NULL, prepared.owner, prepared.gid, 'prepared', NULL,
          extract(epoch FROM clock_timestamp() - prepared.prepared)::float8
     FROM holder
     JOIN pg_locks AS lock ON lock.virtualtransaction = holder.writer AND lock.pid IS NULL
     JOIN pg_prepared_xacts AS prepared ON prepared.transaction = lock.transactionid
    WHERE holder.pid IS NULL
    ORDER BY age DESC NULLS LAST
    LIMIT 5`,
);

/** Of these writers, those that are still open, oldest first. */
export async function readFeedHolders(
  db: Queryable,
  writers: ReadonlySet<string>,
): Promise<FrontierHolder[]> {
  const rows = await db.query<Omit<FrontierHolder, "ageSeconds"> & { age: number | null }>(
    HOLDERS,
    [[...writers]],
  );
  return rows.map(({ age, ...holder }) => ({ ...holder, ageSeconds: age ?? 0 }));
}
