import type { Queryable } from "../../db/database.ts";
import { statement } from "../../db/statement.ts";

// Events are counted along the index of their stream, up to so many of each.
const LIST = statement(
  "parked_streams_list",
  `SELECT stream.consumer_name AS consumer, stream.stream_type AS type, stream.stream_id AS id,
          stream.state, stream.error, stream.stack, stream.since, held.events,
          held.first_position AS position
     FROM (SELECT * FROM {schema}.parked_streams
            ORDER BY since DESC, consumer_name, stream_type, stream_id
            LIMIT $1) AS stream
    CROSS JOIN LATERAL (
      SELECT count(*)::int AS events, min(one.global_position)::text AS first_position
        FROM (SELECT parked.global_position
                FROM {schema}.parked_events AS parked
               WHERE parked.consumer_name = stream.consumer_name
                 AND parked.stream_type = stream.stream_type
                 AND parked.stream_id = stream.stream_id
               ORDER BY parked.global_position
               LIMIT $2) AS one
    ) AS held`,
);

/** A stream that a consumer set aside, with the first of its events. */
export interface ParkedStreamRow {
  /** Or one partition of it. */
  readonly consumer: string;
  readonly type: string;
  readonly id: string;
  readonly state: "parked" | "replaying";
  readonly error: string;
  readonly stack: string | null;
  readonly since: Date;
  readonly events: number;
  readonly position: string | null;
}

/** Newest first. */
export async function listParkedStreams(
  db: Queryable,
  streamsMax: number,
  eventsMax: number,
): Promise<ParkedStreamRow[]> {
  return await db.query<ParkedStreamRow>(LIST, [streamsMax, eventsMax]);
}
