import { InvalidInputError, messageOf, UnavailableError } from "../base/errors.ts";
import { refuseUnknown } from "../base/options.ts";
import { isUuid, uuidv7 } from "../base/uuid.ts";
import type { Database, Queryable } from "../db/database.ts";
import type { SqlExecutor } from "../db/executor.ts";
import type { Notifier } from "../db/notifier.ts";
import { notify } from "../db/sql/session.ts";
import { constraintOf, isUniqueViolation, mapDatabaseError, sqlState } from "../db/sqlstate.ts";
import type { NewEvent, StreamRef } from "./event.ts";
import {
  DuplicateEventError,
  type ExpectedVersion,
  versionRule,
  WrongExpectedVersionError,
} from "./expected-version.ts";
import { type EncodedEvent, insertEvents, readStreamHead } from "./sql/append.ts";

export interface AppendOptions {
  /** Defaults to "any". */
  readonly expectedVersion?: ExpectedVersion;
  /** The caller's own transaction: the events become visible when it commits. */
  readonly tx?: SqlExecutor;
}

export interface AppendResult {
  readonly stream: StreamRef;
  /** Positions of the events in the order given, ascending. */
  readonly positions: readonly bigint[];
  /** Position of the last one: what `waitFor` waits for. */
  readonly position: bigint;
  /** Version of the stream before the first event. */
  readonly fromVersion: bigint;
  /** Version of the stream after the last event. */
  readonly toVersion: bigint;
}

export interface AppendContext {
  readonly db: Database;
  /** Undefined when appends are not announced. */
  readonly notifyChannel: string | undefined;
  readonly notifier: Notifier | undefined;
}

/** Appends events to one stream: all of them, in order, without a hole between them, or none. */
export async function append(
  context: AppendContext,
  stream: StreamRef,
  events: readonly NewEvent[],
  options: AppendOptions = {},
): Promise<AppendResult> {
  refuseUnknown("append", options, ["expectedVersion", "tx"]);
  const expected = options.expectedVersion ?? "any";
  const rule = versionRule(expected);
  const encoded = encodeEvents(stream, events);
  const { tx } = options;
  const rows = await (tx === undefined
    ? appendAlone(context, (db) => insertEvents(db, stream, rule, encoded))
    : insertEvents(context.db.over(tx), stream, rule, encoded)
  ).catch((error: unknown) => {
    throw appendError(error, stream);
  });
  const [first, last] = [rows[0], rows.at(-1)];
  if (first === undefined || last === undefined) {
    const db = tx === undefined ? context.db : context.db.over(tx);
    throw new WrongExpectedVersionError(stream, expected, await readStreamHead(db, stream));
  }
  if (tx !== undefined && context.notifyChannel !== undefined) {
    // Without a payload, PostgreSQL folds all appends of one transaction into one notification.
    await notify(context.db.over(tx), context.notifyChannel, "");
  }
  return {
    stream,
    positions: rows.map((row) => row.position),
    position: last.position,
    fromVersion: first.version - 1n,
    toVersion: last.version,
  };
}

async function appendAlone<T>(
  { db, notifier }: AppendContext,
  insert: (db: Queryable) => Promise<T>,
): Promise<T> {
  return await db.withConnection((connection) =>
    notifier === undefined
      ? insert(connection)
      : notifier.announce(connection, () => insert(connection)),
  );
}

function appendError(error: unknown, stream: StreamRef): Error {
  const cause = error instanceof Error && error.cause !== undefined ? error.cause : error;
  if (isUniqueViolation(cause)) {
    const what = /event_id|event_keys_pkey/.test(constraintOf(cause) ?? "") ? "id" : "version";
    return new DuplicateEventError(
      `an event with this ${what} is already in the log (stream ${stream.type}/${stream.id})`,
      { cause },
    );
  }
  if (sqlState(cause) === "23514" && /no partition/.test(messageOf(cause))) {
    return new UnavailableError(
      "the event log has no partition for the next position: a running worker makes them ahead; " +
        "start one, or partition in larger ranges",
      { cause },
    );
  }
  return mapDatabaseError(error, `append to ${stream.type}/${stream.id}`);
}

const EVENT_KEYS = [
  "type",
  "data",
  "bytes",
  "version",
  "id",
  "metadata",
  "traceId",
  "correlationId",
  "causationId",
  "stream",
];

/** Each event as JSON: what cannot be written as JSON is refused here, by its index. */
function encodeEvents(stream: StreamRef, events: readonly NewEvent[]): string[] {
  if (!stream?.type || !stream.id) {
    throw new InvalidInputError("a stream needs a type and an id that are not empty");
  }
  // UTF-8 has no half characters: the driver would replace them, and two ids would be one.
  if (/\p{Surrogate}/u.test(`${stream.type} ${stream.id}`)) {
    throw new InvalidInputError("the type and the id of a stream must not hold half a character");
  }
  if (events.length === 0) throw new InvalidInputError("append needs at least one event");
  return events.map((event, index) => {
    try {
      return JSON.stringify(encodeEvent(stream, event, index + 1));
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      throw new InvalidInputError(`event ${index}: ${reason}`, { cause: error });
    }
  });
}

function encodeEvent(stream: StreamRef, event: NewEvent, ord: number): EncodedEvent {
  refuseUnknown("event", event, EVENT_KEYS);
  if (!event.type) throw new InvalidInputError("type must not be empty");
  if (event.stream !== undefined && event.stream.type !== stream.type) {
    throw new InvalidInputError(`stream type mismatch: ${event.stream.type}, not ${stream.type}`);
  }
  if (event.stream !== undefined && event.stream.id !== stream.id) {
    throw new InvalidInputError(`stream id mismatch: ${event.stream.id}, not ${stream.id}`);
  }
  if (event.id !== undefined && !isUuid(event.id)) {
    throw new InvalidInputError(`id must be a UUID, not ${JSON.stringify(event.id)}`);
  }
  const version = event.version ?? 1;
  if (!Number.isInteger(version) || version < 1 || version > 0x7fffffff) {
    throw new InvalidInputError(`version must be a whole number of at least 1, not ${version}`);
  }
  return {
    ord,
    id: event.id ?? uuidv7(),
    type: event.type,
    version,
    ...encodePayload(event),
    ...(event.metadata === undefined ? {} : { metadata: event.metadata }),
    ...(event.traceId ? { trace: event.traceId } : {}),
    ...(event.correlationId ? { correlation: event.correlationId } : {}),
    ...(event.causationId ? { causation: event.causationId } : {}),
  };
}

function encodePayload(event: NewEvent): { json: string } | { base64: string } {
  if (event.bytes !== undefined) {
    if (event.data !== undefined) throw new InvalidInputError("give data or bytes, not both");
    return { base64: Buffer.from(event.bytes).toString("base64") };
  }
  const json: string | undefined = JSON.stringify(event.data === undefined ? {} : event.data);
  if (json === undefined) throw new InvalidInputError("data cannot be written as JSON");
  return { json };
}
