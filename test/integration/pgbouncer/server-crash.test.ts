import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { queue, Tidemill } from "../../../src/index.ts";
import { onCleanup, type TestDatabase, testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { FAST } from "../../support/options.ts";
import { type OwnServer, ownServer } from "../../support/own-server.ts";
import { type PgBouncer, startPgBouncer, whyNoPgBouncer } from "../../support/pgbouncer.ts";
import { readHistory } from "../../support/task-runs.ts";
import { gate, range, readColumn } from "../tasks/scene.ts";

/*
 * Claims commit asynchronously, so a crash may take one back. A pooler hides the crash: a client
 * that was between two statements keeps its connection, and what it remembers of lanes.
 */

const LEASE_SECONDS = 6;
/** Long enough for the server and the pooler to be back before the worker looks. */
const POLL_MS = 4_000;
const missing = whyNoPgBouncer();
let server: OwnServer;
let pooler: PgBouncer;

beforeAll(async () => {
  if (missing !== undefined) return;
  // Nothing is flushed unless a commit demands it.
  server = await ownServer({
    autovacuum: "off",
    bgwriter_lru_maxpages: "0",
    wal_writer_delay: "10s",
  });
  pooler = await startPgBouncer(server.url, { server_login_retry: "1" });
});

afterAll(async () => {
  await pooler?.stop();
  await server?.remove();
});

beforeEach((context) => {
  if (missing !== undefined) context.skip(missing);
});

const many = queue<number>("many");
const late = queue<number>("late");

/** Everything but what must survive is committed asynchronously, so that a crash takes it back. */
async function connect(database: TestDatabase): Promise<Tidemill> {
  const name = new URL(database.url).pathname.slice(1);
  await database.pool.query(`ALTER DATABASE ${name} SET synchronous_commit = off`);
  const mill = await Tidemill.connect(pooler.through(database.url));
  onCleanup(() => mill.close());
  return mill;
}

/** Work comes, and each time the worker looks; what the first look saw was taken in by then. */
async function lookTwice(mill: Tidemill): Promise<void> {
  for (const payload of range(2)) await (await mill.enqueue(many, payload)).result();
}

/** A statement under way would tell the worker of the crash. */
async function quiet(database: TestDatabase): Promise<void> {
  await eventually(async () => {
    const busy = await readColumn(
      database,
      `SELECT pid FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid()
          AND query LIKE '%task_lanes%' AND query_start > clock_timestamp() - INTERVAL '300 ms'`,
    );
    expect(busy).toEqual([]);
  });
}

/** What a commit has forced to the disk. */
const flushedTo = async (database: TestDatabase): Promise<string | undefined> =>
  (await readColumn<string>(database, "SELECT pg_current_wal_flush_lsn()::text"))[0];

describe("a claim that a crash of the server took back, behind a pooler", () => {
  it("is made again within the lease and two seconds", async () => {
    const database = await testDatabase({ server: server.url });
    const mill = await connect(database);
    const starts: number[] = [];
    const crashed = gate();
    const started = gate();
    await mill.startWorker({
      ...FAST,
      heartbeatTimeout: 20_000,
      leaderStrategy: "lease",
      dispatcherStrategy: "poll",
      taskPollInterval: POLL_MS,
      leaseSeconds: LEASE_SECONDS,
      handlers: [
        many.handle(() => undefined),
        late.handle(async () => {
          starts.push(performance.now());
          started.open();
          if (starts.length === 1) await crashed.opened;
        }),
      ],
    });
    await mill.queues.pause("late");
    const { id } = await mill.enqueue(late, 1);
    await mill.enqueueMany(
      many,
      range(1_200).map((payload) => ({ payload })),
    );
    // The numbers up to the task's own are settled, which needs more than a thousand.
    await eventually(async () => {
      const done = await readColumn(database, "SELECT count(*)::int FROM tidemill.task_history");
      expect(done).toEqual([1_200]);
    });
    await lookTwice(mill);

    const [walWriter] = await readColumn<number>(
      database,
      "SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'",
    );
    process.kill(walWriter ?? 0, "SIGSTOP");
    await database.pool.query(
      `BEGIN; SET LOCAL synchronous_commit = on;
       UPDATE tidemill.queues SET paused_at = NULL; COMMIT`,
    );
    const flushed = await flushedTo(database);
    await started.opened;
    await lookTwice(mill);
    await quiet(database);
    expect(await flushedTo(database)).toBe(flushed); // The claim is in memory only.
    process.kill(walWriter ?? 0, "SIGKILL");
    const crashedAtMs = performance.now();
    await eventually(() => expect(starts).toHaveLength(2));
    expect((starts[1] ?? 0) - crashedAtMs).toBeLessThan((LEASE_SECONDS + 2) * 1000);
    crashed.open();
    // The first generation: the server knows nothing of the first claim.
    await eventually(async () =>
      expect(await readHistory(database.pool, id)).toMatchObject([
        { state: "completed", generation: 1, attempt: 1 },
      ]),
    );
  });
});
