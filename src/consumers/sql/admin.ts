import type { Queryable } from "../../db/database.ts";
import { statement } from "../../db/statement.ts";
import type { StoppedState } from "./batch.ts";

const PARTITIONS = statement(
  "consumer_partitions_of",
  `SELECT COALESCE(
            (SELECT partitions FROM {schema}.consumer_partitions WHERE consumer_name = $1),
            (SELECT 1 FROM {consumer_checkpoints} WHERE consumer_name = $1)) AS partitions`,
);

/** Undefined when nobody ever registered the consumer. */
export async function readPartitionCount(
  db: Queryable,
  consumer: string,
): Promise<number | undefined> {
  const [row] = await db.query<{ partitions: number | null }>(PARTITIONS, [consumer]);
  return row?.partitions ?? undefined;
}

/** How far parked streams and events of a consumer are counted. */
export const PARKED_MAX = 10_000;

// Whoever watches asks every two seconds, so what is parked is counted along the primary keys and
// up to a bound. The consumer is compared as a range: nothing else can give the order then,
// whatever the planner has learnt of a consumer that parked most of it.
const LIST = statement(
  "consumers_list",
  `SELECT checkpoint.consumer_name AS name,
          split.consumer_name AS consumer,
          checkpoint.last_position,
          checkpoint.updated_at,
          assignment.worker_id,
          state.state, state.reason, state.position, state.event_id, state.error, state.stack,
          state.failures, state.since,
          (SELECT count(*)
             FROM (SELECT FROM {schema}.parked_streams AS parked
                    WHERE parked.consumer_name >= checkpoint.consumer_name
                      AND parked.consumer_name <= checkpoint.consumer_name
                    ORDER BY parked.consumer_name, parked.stream_type, parked.stream_id
                    LIMIT $1) AS one)::int AS parked_streams,
          (SELECT count(*)
             FROM (SELECT FROM {schema}.parked_events AS parked
                    WHERE parked.consumer_name >= checkpoint.consumer_name
                      AND parked.consumer_name <= checkpoint.consumer_name
                    ORDER BY parked.consumer_name, parked.global_position
                    LIMIT $1) AS one)::int AS parked_events,
          COALESCE((SELECT global_position FROM {events}
                     ORDER BY global_position DESC LIMIT 1), 0) AS latest,
          (SELECT GREATEST(0, extract(epoch FROM NOW() - next.created_at))::float8
             FROM {events} AS next
            WHERE next.global_position > checkpoint.last_position
            ORDER BY next.global_position
            LIMIT 1) AS lag_seconds
     FROM {consumer_checkpoints} AS checkpoint
     LEFT JOIN {consumer_assignments} AS assignment
       ON assignment.consumer_name = checkpoint.consumer_name
     LEFT JOIN {schema}.consumer_states AS state
       ON state.consumer_name = checkpoint.consumer_name
     LEFT JOIN {schema}.consumer_partitions AS split
       ON split.consumer_name = regexp_replace(checkpoint.consumer_name, '/\\d+$', '')
    ORDER BY checkpoint.consumer_name COLLATE "C"`,
);

export interface ConsumerRow {
  readonly name: string;
  readonly consumer: string | null;
  readonly last_position: string;
  readonly updated_at: Date;
  readonly worker_id: string | null;
  readonly state: StoppedState | null;
  readonly reason: string | null;
  readonly position: string | null;
  readonly event_id: string | null;
  readonly error: string | null;
  readonly stack: string | null;
  readonly failures: number | null;
  readonly since: Date | null;
  readonly parked_streams: number;
  readonly parked_events: number;
  readonly latest: string;
  /** Null at the end of the log. */
  readonly lag_seconds: number | null;
}

export async function listConsumers(db: Queryable): Promise<ConsumerRow[]> {
  return await db.query<ConsumerRow>(LIST, [PARKED_MAX]);
}

const PROGRESS = statement(
  "consumer_progress",
  `SELECT count(*)::int AS found,
          COALESCE(min(checkpoint.last_position), 0) AS slowest,
          max(state.state) AS state
     FROM {consumer_checkpoints} AS checkpoint
     LEFT JOIN {schema}.consumer_states AS state
       ON state.consumer_name = checkpoint.consumer_name
    WHERE checkpoint.consumer_name = ANY($1::text[])`,
);

export interface Progress {
  readonly found: number;
  readonly slowest: bigint;
  readonly state: StoppedState | undefined;
}

export async function readProgress(
  db: Queryable,
  partitions: readonly string[],
): Promise<Progress> {
  const [row] = await db.query<{ found: number; slowest: string; state: StoppedState | null }>(
    PROGRESS,
    [[...partitions]],
  );
  return {
    found: row?.found ?? 0,
    slowest: BigInt(row?.slowest ?? 0),
    state: row?.state ?? undefined,
  };
}

const NEXT_POSITION = statement(
  "next_position",
  `SELECT global_position FROM {events}
    WHERE global_position > $1
    ORDER BY global_position
    LIMIT 1`,
);

export async function readNextPosition(db: Queryable, after: bigint): Promise<bigint | undefined> {
  const [row] = await db.query<{ global_position: string }>(NEXT_POSITION, [String(after)]);
  return row === undefined ? undefined : BigInt(row.global_position);
}

const POISON_POSITION = statement(
  "poison_position",
  "SELECT position FROM {schema}.consumer_states WHERE consumer_name = $1",
);

export async function readPoisonPosition(
  db: Queryable,
  partition: string,
): Promise<bigint | undefined> {
  const [row] = await db.query<{ position: string | null }>(POISON_POSITION, [partition]);
  return row?.position == null ? undefined : BigInt(row.position);
}

const FORGET_PARKED = statement(
  "parked_forget",
  `WITH gone AS (
     DELETE FROM {schema}.parked_events WHERE consumer_name = $1 AND global_position > $2
   )
   DELETE FROM {schema}.parked_streams AS stream
    WHERE stream.consumer_name = $1
      AND NOT EXISTS (
        SELECT FROM {schema}.parked_events AS parked
         WHERE parked.consumer_name = $1
           AND parked.stream_type = stream.stream_type
           AND parked.stream_id = stream.stream_id
           AND parked.global_position <= $2)`,
);

/** A rewound consumer meets those events again in the log. */
export async function forgetParkedAbove(
  tx: Queryable,
  partition: string,
  position: bigint,
): Promise<void> {
  await tx.query(FORGET_PARKED, [partition, String(position)]);
}

const RECORD = statement(
  "operator_action",
  `INSERT INTO {schema}.operator_actions (consumer_name, action, detail, reason)
   VALUES ($1, $2, $3::text::jsonb, $4)`,
);

export async function recordAction(
  tx: Queryable,
  consumer: string,
  action: string,
  detail: { readonly reason?: string | undefined; readonly [key: string]: unknown },
): Promise<void> {
  const { reason, ...rest } = detail;
  await tx.query(RECORD, [consumer, action, JSON.stringify(rest), reason ?? null]);
}

const CAPABLE = statement(
  "consumer_capable_workers",
  `SELECT info.worker_id
     FROM {schema}.worker_info AS info
     JOIN {worker_nodes} AS node ON node.worker_id = info.worker_id
    WHERE info.status IN ('active', 'draining')
      AND node.heartbeat_at >= NOW() - INTERVAL '30 seconds'
      AND info.capabilities && $1::text[]`,
);

/** Live workers whose program still has this consumer. */
export async function readCapableWorkers(
  db: Queryable,
  partitions: readonly string[],
): Promise<string[]> {
  const rows = await db.query<{ worker_id: string }>(CAPABLE, [[...partitions]]);
  return rows.map((row) => row.worker_id);
}

const RETIRE = [
  "DELETE FROM {consumer_assignments} WHERE consumer_name = ANY($1::text[])",
  "DELETE FROM {consumer_checkpoints} WHERE consumer_name = ANY($1::text[])",
  "DELETE FROM {schema}.consumer_states WHERE consumer_name = ANY($1::text[])",
  "DELETE FROM {schema}.parked_events WHERE consumer_name = ANY($1::text[])",
  "DELETE FROM {schema}.parked_streams WHERE consumer_name = ANY($1::text[])",
  "DELETE FROM {schema}.consumer_holds WHERE consumer_name = ANY($1::text[])",
].map((text, index) => statement(`consumer_retire_${index}`, text));

const FORGET_CONSUMER = [
  "DELETE FROM {schema}.consumer_partitions WHERE consumer_name = $1",
  "DELETE FROM {schema}.consumer_tables WHERE consumer_name = $1",
].map((text, index) => statement(`consumer_forget_${index}`, text));

/** Removes every trace of the consumer but the audit. */
export async function deleteConsumer(
  tx: Queryable,
  consumer: string,
  partitions: readonly string[],
): Promise<void> {
  for (const one of RETIRE) await tx.query(one, [[...partitions]]);
  for (const one of FORGET_CONSUMER) await tx.query(one, [consumer]);
}

const SET_PARTITIONS = statement(
  "consumer_partitions_set",
  `INSERT INTO {schema}.consumer_partitions (consumer_name, partitions) VALUES ($1, $2)`,
);

const INSERT_CHECKPOINTS = statement(
  "checkpoints_insert",
  `INSERT INTO {consumer_checkpoints} (consumer_name, last_position)
   SELECT name, $2 FROM unnest($1::text[]) AS name`,
);

export async function insertConsumer(
  tx: Queryable,
  consumer: string,
  partitions: readonly string[],
  position: bigint,
): Promise<void> {
  await tx.query(SET_PARTITIONS, [consumer, partitions.length]);
  await tx.query(INSERT_CHECKPOINTS, [[...partitions], String(position)]);
}
