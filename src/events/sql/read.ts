import type { Connection, Queryable } from "../../db/database.ts";
import { statement } from "../../db/statement.ts";
import { PersistedEvent, type StreamRef } from "../event.ts";
import { EVENT_COLUMNS } from "./columns.ts";

const READ_AFTER = statement(
  "events_after",
  `SELECT ${EVENT_COLUMNS}
     FROM {events}
    WHERE global_position > $1
    ORDER BY global_position
    LIMIT $2`,
);

export async function readEventsAfter(
  connection: Connection,
  after: bigint,
  countMax: number,
): Promise<PersistedEvent[]> {
  const rows = await connection.queryText(READ_AFTER, [String(after), countMax]);
  return rows.map((row) => new PersistedEvent(row));
}

const READ_STREAM = statement(
  "events_of_stream",
  `SELECT ${EVENT_COLUMNS}
     FROM {events}
    WHERE {stream_type} = $1
      AND {stream_id} = $2
      AND {stream_version} BETWEEN $3 AND $4
    ORDER BY {stream_version}
    LIMIT $5`,
);

export interface StreamRange {
  readonly fromVersion: bigint;
  readonly toVersion: bigint;
  readonly countMax: number;
}

export async function readEventsOfStream(
  connection: Connection,
  stream: StreamRef,
  range: StreamRange,
): Promise<PersistedEvent[]> {
  const { fromVersion, toVersion, countMax } = range;
  const values = [stream.type, stream.id, String(fromVersion), String(toVersion), countMax];
  const rows = await connection.queryText(READ_STREAM, values);
  return rows.map((row) => new PersistedEvent(row));
}

const LATEST = statement(
  "latest_position",
  "SELECT global_position FROM {events} ORDER BY global_position DESC LIMIT 1",
);

/** The highest position that is visible now; 0 in an empty log. */
export async function readLatestPosition(db: Queryable): Promise<bigint> {
  const [row] = await db.query<{ global_position: string }>(LATEST);
  return BigInt(row?.global_position ?? 0);
}
