import type { Queryable } from "../../db/database.ts";
import { statement } from "../../db/statement.ts";

const REGISTER_CHECKPOINTS = statement(
  "checkpoints_register",
  `INSERT INTO {consumer_checkpoints} (consumer_name)
   SELECT name FROM unnest($1::text[]) AS name
       ON CONFLICT DO NOTHING`,
);

export async function registerCheckpoints(db: Queryable, names: readonly string[]): Promise<void> {
  await db.query(REGISTER_CHECKPOINTS, [[...names]]);
}

const REGISTER_PARTITIONS = statement(
  "consumer_partitions_register",
  `WITH wanted AS (
     SELECT name, partitions FROM unnest($1::text[], $2::int[]) AS wanted(name, partitions)
   ), made AS (
     INSERT INTO {schema}.consumer_partitions (consumer_name, partitions)
     SELECT name, partitions FROM wanted
         ON CONFLICT DO NOTHING
   )
   SELECT stored.consumer_name, stored.partitions
     FROM {schema}.consumer_partitions AS stored
     JOIN wanted ON wanted.name = stored.consumer_name
    WHERE stored.partitions <> wanted.partitions`,
);

/** Records how consumers are split. Returns those that are stored with another number. */
export async function registerPartitions(
  db: Queryable,
  consumers: readonly { readonly name: string; readonly partitions: number }[],
): Promise<{ name: string; partitions: number }[]> {
  const rows = await db.query<{ consumer_name: string; partitions: number }>(REGISTER_PARTITIONS, [
    consumers.map((consumer) => consumer.name),
    consumers.map((consumer) => consumer.partitions),
  ]);
  return rows.map((row) => ({ name: row.consumer_name, partitions: row.partitions }));
}

const PULSE = statement(
  "pulse",
  `SELECT (SELECT version FROM {schema}.cluster_changes WHERE id = 1) AS changes,
          (SELECT global_position FROM {events} ORDER BY global_position DESC LIMIT 1) AS latest,
          COALESCE(pg_sequence_last_value('{schema}.task_numbers'::regclass), 0) AS task_number`,
);

export interface Pulse {
  readonly changes: bigint;
  readonly latest: bigint;
  /** The last number drawn for a task, which may not be committed yet. */
  readonly taskNumber: bigint;
}

/** What may have happened since the last look: the log grew, the cluster changed. */
export async function readPulse(db: Queryable): Promise<Pulse> {
  const [row] = await db.query<{ changes: string; latest: string | null; task_number: string }>(
    PULSE,
  );
  return {
    changes: BigInt(row?.changes ?? 0),
    latest: BigInt(row?.latest ?? 0),
    taskNumber: BigInt(row?.task_number ?? 0),
  };
}
