import { chaos, type Mutant, model, test } from "../mutant.ts";

/* Which positions of the log are settled, and who may hand them to a consumer. */

const BATCH = "src/consumers/batch.ts";
const SQL_BATCH = "src/consumers/sql/batch.ts";
const READER = "src/consumers/reader.ts";
const EPOCH = "src/db/sql/epoch.ts";
const STORE = "sql/migrations/0001_event_store.sql";
const PRECONDITIONS = "src/events/preconditions.ts";

const ASSIGNMENT_LOCK = {
  file: SQL_BATCH,
  find: `
     FROM {consumer_assignments}
    WHERE consumer_name = $1
      FOR UPDATE\``,
  replace: `
     FROM {consumer_assignments}
    WHERE consumer_name = $1\``,
};
const OWNER = {
  file: BATCH,
  find: "if (assignment?.ownerId !== workerId) return",
  replace: "if (assignment === undefined && workerId !== undefined) return",
};
const DRIFT = [
  {
    file: BATCH,
    find: "if (checkpoint.position !== plan.window.after) return",
    replace: "if (checkpoint.position < 0n) return",
  },
  {
    file: SQL_BATCH,
    find: "WHERE consumer_name = $1 AND last_position = $3",
    replace: "WHERE consumer_name = $1 AND $3::bigint IS NOT NULL",
  },
];

export const LOG_MUTANTS: readonly Mutant[] = [
  {
    name: "checkpoint-drift-unchecked",
    breaks: "a batch is committed though the checkpoint is not the one it was made from",
    edits: DRIFT,
    catchers: [test("test/model/batch-interleavings.test.ts")],
  },
  {
    name: "batch-owner-unlocked",
    breaks: "a consumer moves to another worker while a batch of it runs",
    edits: [ASSIGNMENT_LOCK],
    catchers: [test("test/model/batch-interleavings.test.ts")],
  },
  {
    name: "batch-unfenced",
    breaks: "nothing tells a worker that its consumer is somebody else's now",
    edits: [ASSIGNMENT_LOCK, OWNER, ...DRIFT],
    catchers: [
      chaos({
        seconds: 20,
        seeds: [1, 2],
        faults: ["pause-past-lease"],
        rules: ["repeated-event", "reordered-event", "checkpoint-behind"],
      }),
    ],
  },
  {
    name: "announced-event-unconfirmed",
    breaks: "a batch that began while its events were read trusts what a crash has taken back",
    edits: [
      {
        file: BATCH,
        find: "const isKnown = known !== undefined || last === undefined;",
        replace: "const isKnown = true || last === undefined;",
      },
    ],
    catchers: [
      test("test/integration/frontier/crashes.test.ts", { only: "was seen and taken back" }),
    ],
  },
  {
    name: "fence-by-recorded-xmax",
    breaks: "an epoch is fenced by a snapshot's xmax, which writers that run may be beyond",
    edits: [
      {
        file: EPOCH,
        find: "RETURNING pg_current_xact_id()::text AS fence",
        replace: "RETURNING pg_snapshot_xmax(pg_current_snapshot())::text AS fence",
      },
    ],
    catchers: [model("consumer.test.ts"), test("test/model/interleaved-writers.test.ts")],
  },
  {
    name: "fence-not-durable",
    breaks: "a crash takes an epoch's fence back, and positions below its ceiling are drawn again",
    edits: [
      {
        file: EPOCH,
        find: `\`UPDATE {schema}.frontier_fence
      SET drawn_at = clock_timestamp()
    WHERE id = 1
      AND (current_setting('synchronous_commit') <> 'off'
           OR set_config('synchronous_commit', 'local', true) IS NOT NULL)
   RETURNING pg_current_xact_id()::text AS fence\``,
        replace: '"SELECT pg_current_xact_id()::text AS fence"',
      },
    ],
    catchers: [test("test/integration/frontier/crashes.test.ts", { only: "S10b" })],
  },
  {
    name: "lock-holders-ignored",
    breaks: "an epoch closes though somebody still holds the lock that every append takes",
    edits: [
      {
        file: "src/consumers/frontier.ts",
        find: 'if (locker.startsWith("-1/") || epoch.lockers.has(locker)) return undefined;',
        replace: 'if (locker.startsWith("-1/")) return undefined;',
      },
    ],
    catchers: [test("test/model/interleaved-writers.test.ts", { only: "by who holds locks" })],
  },
  {
    name: "positions-cached",
    breaks: "sessions draw positions 32 at a time, and use them long after others passed them",
    edits: [
      {
        file: STORE,
        find: "GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
        replace: "GENERATED ALWAYS AS IDENTITY (CACHE 32) PRIMARY KEY",
      },
      {
        file: PRECONDITIONS,
        find: "if (!log.sequenceIsPlain) {",
        replace: "if (!log.sequenceIsPlain && server.version < 0) {",
      },
    ],
    catchers: [
      chaos({
        seconds: 10,
        seeds: [1, 2],
        faults: ["roll-back"],
        rules: ["skipped-event", "filled-gap"],
      }),
      model("consumer.test.ts"),
    ],
  },
  {
    name: "position-before-xid",
    breaks: "an insert draws its position before its transaction has an id",
    edits: [
      {
        file: STORE,
        find: `
CREATE TRIGGER tidemill_draw_xid_first BEFORE INSERT ON {events}
    FOR EACH STATEMENT EXECUTE FUNCTION {schema}.draw_xid_first();`,
        replace: "",
      },
      {
        file: PRECONDITIONS,
        find: "if (!log.drawsXidFirst) {",
        replace: "if (!log.drawsXidFirst && server.version < 0) {",
      },
    ],
    catchers: [test("test/integration/frontier/schedules.test.ts", { only: "S2" })],
  },
  {
    name: "full-window-ignored",
    breaks: "a read that was cut by its limit moves the checkpoint beyond its last row",
    edits: [
      {
        file: "src/consumers/frontier.ts",
        find: "return isCutBelowFrontier ? last : frontier;",
        replace: "return isCutBelowFrontier ? frontier : frontier;",
      },
    ],
    catchers: [
      test("test/integration/frontier/schedules.test.ts", { only: "far behind the frontier" }),
    ],
  },
  {
    name: "rows-older-than-proof",
    breaks: "rows that were read before an epoch closed are trusted to be all there is below it",
    edits: [
      {
        file: READER,
        find: "    if (this.#epochs.length > 0 || before === undefined) await this",
        replace: `    const rows = this.#chunkRows;
    const early = before === undefined ? [] : await this.#read(connection, before, rows);
    const isEarly = before !== undefined && early.length < rows;
    if (this.#epochs.length > 0 || before === undefined) await this`,
      },
      {
        file: READER,
        find: `    const rows = this.#chunkRows;
    const events = await this.#read(connection, frontier, rows);
    if (this.#connection !== connection) return "again";`,
        replace: `    const events = isEarly ? early : await this.#read(connection, frontier, rows);
    if (this.#connection !== connection) return "again";`,
      },
      {
        file: READER,
        find: "this.#keep({ from: frontier, to: reached,",
        replace: "this.#keep({ from: isEarly ? before : frontier, to: reached,",
      },
    ],
    catchers: [
      test("test/integration/frontier/stress.alone.test.ts"),
      chaos({
        seconds: 15,
        seeds: [1, 2],
        faults: ["roll-back", "slow-network"],
        rules: ["skipped-event", "filled-gap"],
      }),
    ],
  },
  {
    name: "released-without-error",
    breaks: "a connection whose statement was not answered goes back to the pool",
    edits: [
      {
        file: "src/db/database.ts",
        find: "client.release(isSuspect || connection.isDestroyed);",
        replace: "client.release(isSuspect && connection.isDestroyed && false);",
      },
    ],
    catchers: [test("test/integration/db/half-open.test.ts")],
  },
];
