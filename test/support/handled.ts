import { randomUUID } from "node:crypto";
import pg from "pg";
import { type Consumer, consumer, type Logger } from "../../src/index.ts";
import type { TestDatabase } from "./database.ts";
import { eventually } from "./eventually.ts";

/** What consumers handled, written in their own transactions and without a unique key. */
export class Handled {
  readonly #database: TestDatabase;

  private constructor(database: TestDatabase) {
    this.#database = database;
  }

  static async in(database: TestDatabase): Promise<Handled> {
    await database.pool.query(
      `CREATE TABLE handled (id BIGINT GENERATED ALWAYS AS IDENTITY, consumer TEXT NOT NULL,
                             position BIGINT NOT NULL)`,
    );
    return new Handled(database);
  }

  /** A consumer that writes down every event it is given. */
  consumer(name: string, options: Partial<Consumer> = {}): Consumer {
    return consumer(name, {
      ...options,
      handle: async (event, context) => {
        await options.handle?.(event, context);
        await context.tx.query("INSERT INTO handled (consumer, position) VALUES ($1, $2)", [
          context.consumer,
          String(event.position),
        ]);
      },
    });
  }

  /** Positions in the order in which they were handled. */
  async by(name: string): Promise<number[]> {
    const { rows } = await this.#database.pool.query<{ position: string }>(
      "SELECT position FROM handled WHERE consumer = $1 ORDER BY id",
      [name],
    );
    return rows.map((row) => Number(row.position));
  }

  async count(name: string): Promise<number> {
    const { rows } = await this.#database.pool.query<{ count: number }>(
      "SELECT count(*)::int AS count FROM handled WHERE consumer = $1",
      [name],
    );
    return rows[0]?.count ?? 0;
  }
}

/** Positions of all events that exist, in order. */
export async function positionsIn(database: TestDatabase): Promise<number[]> {
  const { rows } = await database.pool.query<{ global_position: string }>(
    "SELECT global_position FROM tidemill.events ORDER BY global_position",
  );
  return rows.map((row) => Number(row.global_position));
}

/** An insert as another program may do it: no head, no transaction id, only the columns. */
export async function foreignInsert(
  session: pg.ClientBase | pg.Pool,
  streamType: string,
  table = "tidemill.events",
): Promise<number> {
  const { rows } = await session.query<{ global_position: string }>(
    `INSERT INTO ${table}
            (stream_type, stream_id, stream_version, event_id, event_type, payload)
     VALUES ($1, $2, 1, $3, 'Inserted', '{}')
     RETURNING global_position`,
    [streamType, randomUUID(), randomUUID()],
  );
  return Number(rows[0]?.global_position);
}

/** The process id of a session's backend. */
export async function backendOf(session: pg.Client): Promise<number> {
  const { rows } = await session.query<{ pid: number }>("SELECT pg_backend_pid() AS pid");
  return rows[0]?.pid ?? 0;
}

/** Resolves when the backend waits for a lock. */
export async function isBlocked(database: TestDatabase, pid: number): Promise<void> {
  await eventually(async () => {
    const { rows } = await database.pool.query<{ blocked: boolean }>(
      "SELECT wait_event_type = 'Lock' AS blocked FROM pg_stat_activity WHERE pid = $1",
      [pid],
    );
    if (rows[0]?.blocked !== true) throw new Error(`backend ${pid} does not wait for a lock`);
  });
}

export interface GapRow {
  readonly consumer: string;
  readonly gap: number;
  readonly to: number;
  readonly how: string;
  readonly missing: number;
  readonly reason: string | null;
}

export async function gapsIn(database: TestDatabase): Promise<GapRow[]> {
  const { rows } = await database.pool.query<GapRow>(
    `SELECT skip.consumer_name AS consumer, skip.gap_position::int AS gap,
            skip.skip_to_position::int AS to, evidence.how, evidence.missing::int,
            evidence.reason
       FROM tidemill.consumer_gap_skips AS skip
       JOIN tidemill.gap_evidence AS evidence ON evidence.skip_id = skip.id
      ORDER BY skip.id`,
  );
  return rows;
}

/**
 * What the audit says is missing and yet exists: the first position of each crossing, and events
 * that its count of missing positions leaves no room for.
 */
export async function falseGapsIn(database: TestDatabase): Promise<unknown[]> {
  const { rows } = await database.pool.query(
    `SELECT skip.*, evidence.how, evidence.missing,
            (SELECT count(*) FROM tidemill.events
              WHERE global_position BETWEEN gap_position AND skip_to_position) AS present
       FROM tidemill.consumer_gap_skips AS skip
       JOIN tidemill.gap_evidence AS evidence ON evidence.skip_id = skip.id
      WHERE EXISTS (SELECT FROM tidemill.events WHERE global_position = skip.gap_position)
         OR skip.skip_to_position - skip.gap_position + 1 - evidence.missing
            <> (SELECT count(*) FROM tidemill.events
                 WHERE global_position BETWEEN gap_position AND skip_to_position)`,
  );
  return rows;
}

export interface LogLine {
  readonly level: keyof Logger;
  readonly message: string;
  readonly fields: Readonly<Record<string, unknown>>;
}

/** A logger that remembers. */
export function recordingLogger(): { logger: Logger; lines: LogLine[] } {
  const lines: LogLine[] = [];
  const at =
    (level: keyof Logger) =>
    (fields: object, message: string): void => {
      lines.push({ level, message, fields: { ...fields } });
    };
  const logger = { debug: at("debug"), info: at("info"), warn: at("warn"), error: at("error") };
  return { logger, lines };
}
