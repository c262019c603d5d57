import type { Connection, Queryable } from "../../db/database.ts";
import { statement } from "../../db/statement.ts";
import { PersistedEvent, type StreamRef } from "../../events/event.ts";
import { EVENT_COLUMNS } from "../../events/sql/columns.ts";

export interface ParkedStream extends StreamRef {
  readonly state: "parked" | "replaying";
}

const STREAMS = statement(
  "parked_streams_read",
  `SELECT stream_type AS type, stream_id AS id, state
     FROM {schema}.parked_streams
    WHERE consumer_name = $1`,
);

export async function readParkedStreams(db: Queryable, partition: string): Promise<ParkedStream[]> {
  return await db.query<ParkedStream>(STREAMS, [partition]);
}

const PARK_STREAM = statement(
  "parked_stream_insert",
  `INSERT INTO {schema}.parked_streams (consumer_name, stream_type, stream_id, state, error, stack)
   VALUES ($1, $2, $3, 'parked', $4, $5)
       ON CONFLICT DO NOTHING`,
);

export async function parkStream(
  tx: Queryable,
  partition: string,
  stream: StreamRef,
  failure: { readonly error: string; readonly stack: string | undefined },
): Promise<void> {
  const { error, stack } = failure;
  await tx.query(PARK_STREAM, [partition, stream.type, stream.id, error, stack ?? null]);
}

const PARK_EVENTS = statement(
  "parked_events_insert",
  `INSERT INTO {schema}.parked_events (consumer_name, global_position, stream_type, stream_id)
   SELECT $1, event.position, event.type, event.id
     FROM unnest($2::bigint[], $3::text[], $4::text[]) AS event(position, type, id)`,
);

export async function parkEvents(
  tx: Queryable,
  partition: string,
  events: readonly PersistedEvent[],
): Promise<void> {
  await tx.query(PARK_EVENTS, [
    partition,
    events.map((event) => String(event.position)),
    events.map((event) => event.streamType),
    events.map((event) => event.streamId),
  ]);
}

// Position order across streams keeps the order within each.
const NEXT = statement(
  "parked_events_next",
  `SELECT ${EVENT_COLUMNS}
     FROM {events}
    WHERE global_position IN (
            SELECT parked.global_position
              FROM {schema}.parked_events AS parked
              JOIN {schema}.parked_streams AS stream
                ON stream.consumer_name = parked.consumer_name
               AND stream.stream_type = parked.stream_type
               AND stream.stream_id = parked.stream_id
             WHERE parked.consumer_name = $1 AND stream.state = 'replaying'
             ORDER BY parked.global_position
             LIMIT $2)
    ORDER BY global_position`,
);

export async function readReplayableEvents(
  tx: Connection,
  partition: string,
  countMax: number,
): Promise<PersistedEvent[]> {
  const rows = await tx.queryText(NEXT, [partition, countMax]);
  return rows.map((row) => new PersistedEvent(row));
}

const UNPARK = statement(
  "parked_events_delete",
  `DELETE FROM {schema}.parked_events
    WHERE consumer_name = $1 AND global_position = ANY($2::bigint[])`,
);

const FREE_STREAMS = statement(
  "parked_streams_free",
  `DELETE FROM {schema}.parked_streams AS stream
    WHERE stream.consumer_name = $1
      AND stream.state = 'replaying'
      AND NOT EXISTS (
        SELECT FROM {schema}.parked_events AS parked
         WHERE parked.consumer_name = stream.consumer_name
           AND parked.stream_type = stream.stream_type
           AND parked.stream_id = stream.stream_id)`,
);

/** Removes what was replayed, and streams that have nothing left: newer events flow again. */
export async function unparkEvents(
  tx: Queryable,
  partition: string,
  events: readonly PersistedEvent[],
): Promise<void> {
  await tx.query(UNPARK, [partition, events.map((event) => String(event.position))]);
  await tx.query(FREE_STREAMS, [partition]);
}

const SET_STATE = statement(
  "parked_streams_set_state",
  `UPDATE {schema}.parked_streams
      SET state = $2, error = COALESCE($5, error), stack = COALESCE($6, stack)
    WHERE consumer_name = $1 AND state <> $2
      AND ($3::text IS NULL OR (stream_type = $3 AND stream_id = $4))
   RETURNING stream_id`,
);

/** All parked streams of the partition, or only the one given. Returns how many changed. */
export async function setParkedState(
  tx: Queryable,
  partition: string,
  state: ParkedStream["state"],
  only?: {
    readonly stream: StreamRef;
    readonly error?: string;
    readonly stack?: string | undefined;
  },
): Promise<number> {
  const { stream, error = null, stack = null } = only ?? {};
  const values = [partition, state, stream?.type ?? null, stream?.id ?? null, error, stack];
  const rows = await tx.query(SET_STATE, values);
  return rows.length;
}
