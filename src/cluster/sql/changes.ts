import type { Queryable } from "../../db/database.ts";
import { statement } from "../../db/statement.ts";

// The version serves those who poll, the notification those who listen.
const ANNOUNCE = statement(
  "cluster_announce",
  `WITH change AS (
     UPDATE {schema}.cluster_changes
        SET version = version + 1
      WHERE id = 1
     RETURNING version
   )
   SELECT pg_notify($1, version::text) FROM change`,
);

/** Tells every worker that membership, an assignment or a consumer's state has changed. */
export async function announceChange(db: Queryable, channel: string): Promise<void> {
  await db.query(ANNOUNCE, [channel]);
}
