import type { Queryable } from "../../../db/database.ts";
import { statement } from "../../../db/statement.ts";

const HOLD = statement(
  "holds_set",
  `INSERT INTO {schema}.consumer_holds AS held (consumer_name, position, holder, until)
   SELECT name, $2, $3, clock_timestamp() + make_interval(secs => $4::float8)
     FROM unnest($1::text[]) AS name
    ORDER BY name COLLATE "C"
       ON CONFLICT (consumer_name) DO UPDATE
      SET position = excluded.position, holder = excluded.holder, until = excluded.until
    WHERE held.until < clock_timestamp()
   RETURNING consumer_name`,
);

export interface Hold {
  readonly position: bigint;
  readonly holder: string;
  readonly seconds: number;
}

/** How many are held for this holder; fewer than asked for when another holds some of them. */
export async function setHolds(
  tx: Queryable,
  partitions: readonly string[],
  { position, holder, seconds }: Hold,
): Promise<number> {
  const rows = await tx.query(HOLD, [[...partitions], String(position), holder, seconds]);
  return rows.length;
}

const LIFT = statement("holds_lift", "DELETE FROM {schema}.consumer_holds WHERE holder = $1");

export async function liftHolds(tx: Queryable, holder: string): Promise<void> {
  await tx.query(LIFT, [holder]);
}

const POSITIONS = statement(
  "rebuild_positions",
  `SELECT checkpoint.consumer_name, checkpoint.last_position, state.state
     FROM {consumer_checkpoints} AS checkpoint
     LEFT JOIN {schema}.consumer_states AS state
       ON state.consumer_name = checkpoint.consumer_name
    WHERE checkpoint.consumer_name = ANY($1::text[])`,
);

export interface PartitionPosition {
  readonly name: string;
  readonly position: bigint;
  readonly state: "paused" | "quarantined" | undefined;
}

export async function readPositions(
  db: Queryable,
  partitions: readonly string[],
): Promise<PartitionPosition[]> {
  const rows = await db.query<{
    consumer_name: string;
    last_position: string;
    state: "paused" | "quarantined" | null;
  }>(POSITIONS, [[...partitions]]);
  return rows.map((row) => ({
    name: row.consumer_name,
    position: BigInt(row.last_position),
    state: row.state ?? undefined,
  }));
}

const RENAME_EVENTS = statement(
  "parked_events_rename",
  `UPDATE {schema}.parked_events AS parked
      SET consumer_name = one.after
     FROM unnest($1::text[], $2::text[]) AS one(before, after)
    WHERE parked.consumer_name = one.before`,
);
const RENAME_STREAMS = statement(
  "parked_streams_rename",
  `UPDATE {schema}.parked_streams AS parked
      SET consumer_name = one.after, state = 'parked'
     FROM unnest($1::text[], $2::text[]) AS one(before, after)
    WHERE parked.consumer_name = one.before`,
);

/** What was parked under one name is parked under another: it goes with the tables. */
export async function renameParked(
  tx: Queryable,
  names: readonly (readonly [before: string, after: string])[],
): Promise<void> {
  const values = [names.map(([before]) => before), names.map(([, after]) => after)];
  await tx.query(RENAME_EVENTS, values);
  await tx.query(RENAME_STREAMS, values);
}
