import type pg from "pg";

export interface KeyFault {
  readonly key: string;
  readonly taskId: string;
  readonly what: string;
}

// Every run of a task, beside the accepted end of the one before it in its key.
const FAULTS = `
  WITH task AS (
    SELECT ended.id, ended.partition_key AS key, ended.claim_id, accepted.at,
           lag(ended.id) OVER line AS previous_id,
           lag(ended.claim_id) OVER line AS previous_claim_id,
           lag(accepted.at) OVER line AS previous_at
      FROM tidemill.task_history AS ended
      JOIN accepted ON accepted.task_id = ended.id
     WHERE ended.partition_key IS NOT NULL
    WINDOW line AS (PARTITION BY ended.partition_key ORDER BY ended.id)
  )
  SELECT key, id AS "taskId", 'accepted before its predecessor' AS what
    FROM task WHERE at < previous_at
   UNION ALL
  SELECT task.key, task.id, 'started before its predecessor was accepted'
    FROM task JOIN runs AS run ON run.task_id = task.id
   WHERE run.started < task.previous_at
   UNION ALL
  SELECT task.key, task.id, 'started before the accepted run of its predecessor ended'
    FROM task
    JOIN runs AS run ON run.task_id = task.id
    JOIN runs AS before ON before.task_id = task.previous_id
                       AND before.claim_id = task.previous_claim_id
   WHERE before.ended IS NULL OR run.started < before.ended
   UNION ALL
  SELECT task.key, task.id, 'accepted without a run of that claim'
    FROM task
   WHERE NOT EXISTS (SELECT FROM runs AS run
                      WHERE run.task_id = task.id AND run.claim_id = task.claim_id)
   UNION ALL
  SELECT key, id, 'accepted twice'
    FROM task GROUP BY key, id HAVING count(*) > 1`;

/**
 * Where the runs and ends of keyed tasks break the order in which their ids were given. For tasks
 * that were enqueued one statement after another per key, all of them ended.
 */
export async function keyFaults(pool: pg.Pool): Promise<KeyFault[]> {
  return (await pool.query<KeyFault>(FAULTS)).rows;
}
