import { SchemaError } from "../base/errors.ts";
import type { Database } from "../db/database.ts";
import { readServerFacts } from "../db/sql/session.ts";
import { readLogPreconditions } from "./sql/preconditions.ts";

const POSTGRES_MIN = 140_000;

/** Refuses a server on which reading the log could lose events. Returns the log's sequence. */
export async function assertLogPreconditions(db: Database): Promise<string> {
  const server = await readServerFacts(db);
  if (server.version < POSTGRES_MIN) {
    throw new SchemaError(
      `PostgreSQL ${Math.floor(server.version / 10_000)} is too old; use 14 or newer`,
    );
  }
  if (server.inRecovery) {
    throw new SchemaError("this is a read replica; use the primary's address");
  }
  const log = await readLogPreconditions(db);
  const events = db.names.splices["events"];
  if (log === undefined) {
    throw new SchemaError(
      `${events}.global_position has no sequence of its own; run "tidemill migrate"`,
    );
  }
  if (!log.sequenceIsPlain) {
    throw new SchemaError(
      `sequence ${log.sequence} must have CACHE 1, INCREMENT 1 and NO CYCLE, or positions could ` +
        `be skipped; run: ALTER SEQUENCE ${log.sequence} CACHE 1 INCREMENT 1 NO CYCLE`,
    );
  }
  if (!log.drawsXidFirst) {
    throw new SchemaError(
      `trigger tidemill_draw_xid_first is missing or disabled on ${events} or one of its ` +
        "partitions, and late events could be skipped; enable it, or restore it from " +
        "sql/migrations/0001_event_store.sql",
    );
  }
  return log.sequence;
}
