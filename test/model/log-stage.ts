import { randomUUID } from "node:crypto";
import type pg from "pg";
import type { Clock } from "../../src/base/clock.ts";
import { silentLogger } from "../../src/base/log.ts";
import { partitionsOf } from "../../src/consumers/consumer.ts";
import { ConsumerLoop } from "../../src/consumers/consumer-loop.ts";
import { ConsumerMetrics } from "../../src/consumers/metrics.ts";
import { LogReader } from "../../src/consumers/reader.ts";
import type { Database } from "../../src/db/database.ts";
import { assertLogPreconditions } from "../../src/events/preconditions.ts";
import type { Tidemill } from "../../src/index.ts";
import { onCleanup, type TestDatabase, testDatabase } from "../support/database.ts";
import { engineDatabase } from "../support/engine-database.ts";
import { Handled } from "../support/handled.ts";
import { ManualClock } from "../support/manual-clock.ts";

const NAME = "all";
export const SESSIONS = 3;
/** Longer than it takes to draw another fence. */
const STEP_MS = 30;
const BATCH_TIMEOUT_MS = 10_000_000;
/** Whoever distrusts what was read closes the connection, perhaps in the middle of a read. */
const CLOSED = /Client was closed/;
const PATIENCE_MS = 10_000;

/**
 * The real reader and a real consumer, whose clock stands still: they look at the log when a test
 * says so, and at no other time. Beside them, sessions that append.
 */
export class LogStage {
  readonly database: TestDatabase;
  readonly mill: Tidemill;
  readonly sessions: readonly pg.Client[];
  readonly #clock = new ManualClock();
  readonly #reader: LogReader;
  readonly #loop: ConsumerLoop;
  readonly #complaints: string[] = [];
  readonly #sequence: string;

  private constructor(
    database: TestDatabase,
    more: { mill: Tidemill; sessions: pg.Client[]; db: Database; sequence: string },
    handled: Handled,
    workerId: string,
  ) {
    this.database = database;
    this.mill = more.mill;
    this.sessions = more.sessions;
    this.#sequence = more.sequence;
    const clock: Clock = {
      now: () => this.#clock.now(),
      // Of a batch's own limit nobody has to know: whoever waits otherwise is at rest.
      after: (ms, wake) => (ms === BATCH_TIMEOUT_MS ? () => {} : this.#clock.after(ms, wake)),
    };
    const warn = (fields: object, message: string): void => {
      if (!("error" in fields) || CLOSED.test(String(fields.error))) return;
      this.#complaints.push(`${message}: ${JSON.stringify(fields)}`);
    };
    const logger = { ...silentLogger, warn, error: warn };
    const shared = { clock, logger, metrics: new ConsumerMetrics() };
    const staleGapThresholdMs = 1_000_000_000;
    this.#reader = new LogReader(more.db, {
      ...shared,
      sequence: more.sequence,
      staleGapThresholdMs,
      cacheBytesMax: 1024 * 1024,
    });
    const stop = new AbortController();
    const [partition] = partitionsOf(handled.consumer(NAME));
    this.#loop = new ConsumerLoop(more.db, this.#reader, partition!, {
      ...shared,
      workerId,
      staleGapThresholdMs,
      staleGapHarborLag: 8,
      gapPolicy: "epoch",
      onFailure: "quarantine",
      maxConsecutiveFailures: 5,
      batchSize: 3,
      batchPauseMs: 0,
      batchTimeoutMs: BATCH_TIMEOUT_MS,
      pollIntervalMs: STEP_MS,
      maxPollIntervalMs: STEP_MS,
      changesChannel: "model",
      batches: more.db,
      hardStop: stop.signal,
    });
    const running = [this.#reader.run(stop.signal), this.#loop.run(stop.signal)];
    onCleanup(async () => {
      stop.abort();
      await Promise.all(running);
      await more.db.close();
      await this.#forgetPrepared();
    });
  }

  static async open(): Promise<LogStage> {
    const database = await testDatabase();
    const mill = await database.connect();
    const sessions: pg.Client[] = [];
    while (sessions.length < SESSIONS) sessions.push(await database.session());
    const db = engineDatabase(database.url);
    const workerId = randomUUID();
    const { pool } = database;
    await pool.query("INSERT INTO tidemill.worker_nodes (worker_id) VALUES ($1)", [workerId]);
    await pool.query("INSERT INTO tidemill.consumer_assignments VALUES ($1, $2)", [NAME, workerId]);
    await pool.query("INSERT INTO tidemill.consumer_checkpoints VALUES ($1)", [NAME]);
    const sequence = await assertLogPreconditions(db);
    const handled = await Handled.in(database);
    return new LogStage(database, { mill, sessions, db, sequence }, handled, workerId);
  }

  /** No transaction is open. The log goes on from where it is: returns its last position. */
  async reset(): Promise<number> {
    for (const session of this.sessions) await session.query("ROLLBACK");
    await this.#forgetPrepared();
    const { rows } = await this.database.pool.query<{ last: string | null }>(
      "SELECT pg_sequence_last_value($1::regclass) AS last",
      [this.#sequence],
    );
    return Number(rows[0]?.last ?? 0);
  }

  async #forgetPrepared(): Promise<void> {
    const { rows } = await this.database.pool.query<{ gid: string }>(
      "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()",
    );
    for (const { gid } of rows) await this.database.pool.query(`ROLLBACK PREPARED '${gid}'`);
  }

  /** Unlike any other on the server. */
  gid(number: number): string {
    return `${new URL(this.database.url).pathname} ${number}`;
  }

  /** The reader and the consumer each have a turn, and as many more as these cause. */
  async poll(): Promise<void> {
    this.#clock.advance(STEP_MS);
    this.#reader.bell.ring();
    this.#loop.bell.ring();
    const deadline = performance.now() + PATIENCE_MS;
    do {
      await new Promise<void>((resolve) => setImmediate(resolve));
      if (performance.now() > deadline) throw new Error("reader or consumer do not come to rest");
    } while (this.#clock.pending < 2);
    if (this.#complaints.length > 0) throw new Error(this.#complaints.join("; "));
  }

  /** As if the connection had been lost: everything is to be proven again. */
  distrust(): void {
    this.#reader.distrust();
  }

  /** Positions above `base`, in the order in which they were handled. */
  async handledAbove(base: number): Promise<number[]> {
    const { rows } = await this.database.pool.query<{ position: number }>(
      "SELECT position::int AS position FROM handled WHERE position > $1 ORDER BY id",
      [base],
    );
    return rows.map(({ position }) => position);
  }
}
