import type { Queryable } from "../../db/database.ts";
import { statement } from "../../db/statement.ts";
import type { LeaderTerm } from "./assignments.ts";

/** The key of a lock that tells which worker a transaction works for. Null for null. */
export const batchMark = (workerId: string): string =>
  `hashtextextended('tidemill.batch:' || ${workerId}::text, 0)`;

// A session is ended only on proof, all of it of one look at the locks: the transaction that it is
// in now has the row of an assignment, and has said, by the mark that is gone with it, that it
// works for this worker, which is dead by the clock of the database at this moment. Neither a name
// nor a pid that was seen before would prove that: a pooler gives sessions to others after every
// COMMIT. The signal itself names only a pid, so a transaction that ends in the very instant
// between the look and the signal may pass it on to the next one of that session.
const END = statement(
  "dead_batches_end",
  `WITH term AS MATERIALIZED (
     SELECT 1 FROM {schema}.leader_term
      WHERE id = 1 AND term = $1 AND leader_id = $2 AND leader_id <> $3::uuid
        FOR SHARE
   ), locks AS MATERIALIZED (
     SELECT * FROM pg_locks WHERE granted AND locktype IN ('advisory', 'transactionid')
   ), holders AS MATERIALIZED (
     SELECT row.consumer_name, own.pid
       FROM term
      CROSS JOIN {consumer_assignments} AS row
       JOIN locks AS own
         ON own.locktype = 'transactionid'
        AND own.mode = 'ExclusiveLock'
        AND own.transactionid = row.xmax
       JOIN locks AS mark
         ON mark.locktype = 'advisory'
        AND mark.mode = 'ShareLock'
        AND mark.pid = own.pid
        AND mark.objsubid = 1
        AND ((mark.classid::bigint << 32) | mark.objid::bigint) = ${batchMark("$3")}
        AND mark.database = (SELECT oid FROM pg_database WHERE datname = current_database())
      WHERE NOT EXISTS (
            SELECT FROM {worker_nodes} AS node
             WHERE node.worker_id = $3::uuid
               AND node.heartbeat_at >= NOW() - make_interval(secs => $4::float8))
   )
   SELECT consumer_name, pid, pg_terminate_backend(pid) AS ended FROM holders`,
);

export interface EndedBatch {
  readonly consumer: string;
  readonly pid: number;
}

/** Ends the open batches of a worker that has not beaten for so long. */
export async function endDeadBatches(
  db: Queryable,
  { term, leaderId }: LeaderTerm,
  workerId: string,
  timeoutSeconds: number,
): Promise<EndedBatch[]> {
  const rows = await db.query<{ consumer_name: string; pid: number; ended: boolean }>(END, [
    String(term),
    leaderId,
    workerId,
    timeoutSeconds,
  ]);
  return rows
    .filter((row) => row.ended)
    .map(({ consumer_name, pid }) => ({ consumer: consumer_name, pid }));
}
