import type { Queryable } from "../../db/database.ts";
import { type Statement, statement } from "../../db/statement.ts";
import type { StreamRef } from "../event.ts";
import type { VersionRule } from "../expected-version.ts";

// One statement per append: the head row is written, and so locked, before the first position is
// drawn, because the INSERT below draws positions only for rows that the head returned. A head
// that does not match returns no row, writes nothing and leaves the caller's transaction usable.
// One text parameter, because drivers disagree on how arrays are encoded.
const append = (name: string, head: string): Statement =>
  statement(
    name,
    `WITH head AS (${head}
              RETURNING {stream_version} AS last_version
     )
     INSERT INTO {events}
            ({stream_type}, {stream_id}, {stream_version}, event_id, event_type, event_version,
             payload, metadata, trace_id, correlation_id, causation_id)
     SELECT $1, $2, head.last_version - $3::bigint + event.ord, event.id, event.type,
            event.version,
            COALESCE(decode(event.base64, 'base64'), convert_to(event.json, 'UTF8')),
            event.metadata, event.trace, event.correlation, event.causation
       FROM head,
            jsonb_to_recordset($4::text::jsonb) AS event(
              ord int, id uuid, type text, version int, json text, base64 text, metadata jsonb,
              trace text, correlation text, causation text)
      ORDER BY event.ord
     RETURNING global_position, {stream_version} AS version`,
  );

const APPEND_ANY = append(
  "append_any",
  `INSERT INTO {stream_heads} AS head ({stream_type}, {stream_id}, {stream_version})
   VALUES ($1, $2, $3::bigint)
       ON CONFLICT ({stream_type}, {stream_id})
       DO UPDATE SET {stream_version} = head.{stream_version} + $3::bigint, updated_at = NOW()`,
);

const APPEND_NO_STREAM = append(
  "append_no_stream",
  `INSERT INTO {stream_heads} ({stream_type}, {stream_id}, {stream_version})
   VALUES ($1, $2, $3::bigint)
       ON CONFLICT ({stream_type}, {stream_id}) DO NOTHING`,
);

const APPEND_EXACT = append(
  "append_exact",
  `UPDATE {stream_heads}
      SET {stream_version} = {stream_version} + $3::bigint, updated_at = NOW()
    WHERE {stream_type} = $1 AND {stream_id} = $2 AND {stream_version} = $5::bigint`,
);

/** An event as the statement's JSON parameter spells it. */
export interface EncodedEvent {
  readonly ord: number;
  readonly id: string;
  readonly type: string;
  readonly version: number;
  readonly json?: string;
  readonly base64?: string;
  readonly metadata?: unknown;
  readonly trace?: string;
  readonly correlation?: string;
  readonly causation?: string;
}

export interface AppendedRow {
  readonly position: bigint;
  readonly version: bigint;
}

/** Each event is an EncodedEvent as JSON. No rows: the stream was not at the expected version. */
export async function insertEvents(
  db: Queryable,
  stream: StreamRef,
  rule: VersionRule,
  events: readonly string[],
): Promise<AppendedRow[]> {
  const values: unknown[] = [stream.type, stream.id, events.length, `[${events.join(",")}]`];
  if (rule.kind === "exact") values.push(String(rule.version));
  const chosen = { any: APPEND_ANY, "no-stream": APPEND_NO_STREAM, exact: APPEND_EXACT }[rule.kind];
  const rows = await db.query<{ global_position: string; version: string }>(chosen, values);
  return rows
    .map((row) => ({ position: BigInt(row.global_position), version: BigInt(row.version) }))
    .sort((a, b) => (a.version < b.version ? -1 : 1));
}

const HEAD = statement(
  "stream_head",
  `SELECT {stream_version} AS version
     FROM {stream_heads}
    WHERE {stream_type} = $1 AND {stream_id} = $2`,
);

/** 0 when the stream does not exist. */
export async function readStreamHead(db: Queryable, stream: StreamRef): Promise<bigint> {
  const [row] = await db.query<{ version: string }>(HEAD, [stream.type, stream.id]);
  return BigInt(row?.version ?? 0);
}
