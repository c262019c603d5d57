import { randomUUID } from "node:crypto";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { Bell } from "../../../src/base/bell.ts";
import { systemClock } from "../../../src/base/clock.ts";
import { silentLogger } from "../../../src/base/log.ts";
import { type BatchOutcome, type BatchPlan, runBatch } from "../../../src/consumers/batch.ts";
import { partitionsOf } from "../../../src/consumers/consumer.ts";
import { ConsumerMetrics } from "../../../src/consumers/metrics.ts";
import { LogReader } from "../../../src/consumers/reader.ts";
import { Database } from "../../../src/db/database.ts";
import { resolveNames } from "../../../src/db/names.ts";
import type { Consumer, Tidemill } from "../../../src/index.ts";
import { onCleanup, type TestDatabase, testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { backendOf, falseGapsIn, gapsIn, Handled, positionsIn } from "../../support/handled.ts";
import { FAST } from "../../support/options.ts";
import { type OwnServer, ownServer } from "../../support/own-server.ts";

/*
 * A crash takes back what was not flushed: ids and positions that were handed out, and events that
 * were committed asynchronously and had been seen. Each test keeps a window that was read before
 * the crash and runs its batch after it, as a worker whose batch waited for a connection would.
 */

// A test that is given up while it restarts the server would take the next one down with it.
vi.setConfig({ testTimeout: 90_000 });

let server: OwnServer;

beforeAll(async () => {
  // The server flushes only when a commit demands it, so that a crash has something to take back.
  server = await ownServer({
    autovacuum: "off",
    max_prepared_transactions: "5",
    wal_writer_delay: "10s",
  });
});

afterAll(() => server.remove());

const stream = (id: string | number) => ({ type: "Order", id: String(id) });
const paid = [{ type: "Paid" }];

interface Scene {
  readonly database: TestDatabase;
  readonly mill: Tidemill;
  readonly handled: Handled;
  readonly all: Consumer;
  /** Starts a reader of its own and waits until it knows this much. */
  readAt(frontier: bigint): Promise<LogReader>;
  run(plan: BatchPlan | Promise<BatchPlan>): Promise<BatchOutcome>;
}

/** A consumer that has handled everything up to `count`, and whose owner is this test. */
async function scene(count: number): Promise<Scene> {
  const database = await testDatabase({ server: server.url });
  const mill = await database.connect();
  const handled = await Handled.in(database);
  const all = handled.consumer("all");
  const worker = await mill.startWorker({ ...FAST, consumers: [all] });
  if (count > 0) {
    const events = Array.from({ length: count }, () => paid).flat();
    await mill.waitFor(all, await mill.append(stream("before"), events));
  }
  await worker.stop();
  const workerId = randomUUID();
  await database.pool.query("INSERT INTO tidemill.worker_nodes (worker_id) VALUES ($1)", [
    workerId,
  ]);
  await database.pool.query("UPDATE tidemill.consumer_assignments SET worker_id = $1", [workerId]);

  const db = new Database({
    url: database.url,
    names: resolveNames(),
    logger: silentLogger,
    poolSize: 2,
    applicationName: "test",
    preparedStatements: true,
    queryTimeoutMs: 10_000,
    connectTimeoutMs: 10_000,
  });
  onCleanup(() => db.close());
  const [partition] = partitionsOf(all);
  if (partition === undefined) throw new Error("no partition");
  return {
    database,
    mill,
    handled,
    all,
    readAt: (frontier) => startReader(db, frontier),
    run: (plan) =>
      runBatch(
        {
          db,
          partition,
          workerId,
          parks: () => false,
          batchTimeoutMs: 10_000,
          clock: systemClock,
          hardStop: new AbortController().signal,
        },
        plan,
      ),
  };
}

async function startReader(db: Database, frontier: bigint): Promise<LogReader> {
  const reader = new LogReader(db, {
    sequence: "tidemill.events_global_position_seq",
    staleGapThresholdMs: 10_000,
    cacheBytesMax: 1_000_000,
    clock: systemClock,
    logger: silentLogger,
    metrics: new ConsumerMetrics(),
  });
  const abort = new AbortController();
  const running = reader.run(abort.signal);
  onCleanup(async () => {
    abort.abort();
    await running;
  });
  await reaches(reader, frontier);
  return reader;
}

async function reaches(reader: LogReader, frontier: bigint): Promise<void> {
  await eventually(() => {
    reader.bell.ring();
    expect(reader.frontier).toBe(frontier);
  });
}

/** What a consumer at `after` would do next. */
async function planAbove(reader: LogReader, after: bigint): Promise<BatchPlan> {
  const window = await reader.window(after, 100, new Bell());
  if (window === undefined) throw new Error(`nothing above ${after}`);
  return { window, proof: reader.proof };
}

/** Draws positions and gives them up, without anything that would make the server flush. */
async function drawInVain({ database, mill }: Scene, count: number): Promise<void> {
  const session = await database.session();
  await session.query("BEGIN");
  for (let time = 0; time < count; time += 1) {
    await mill.append(stream(`vain ${time}`), paid, { tx: session });
  }
  await session.query("ROLLBACK");
}

/**
 * Reads an event that a crash then takes back, with its position, which another event gets. Fails
 * when the server flushed by itself meanwhile.
 */
async function seeWhatIsTakenBack() {
  const one = await scene(33);
  const reader = await one.readAt(33n);
  const session = await one.database.session();
  await session.query("SET synchronous_commit = off");
  const flushedTo = async (): Promise<unknown> =>
    (await session.query("SELECT pg_current_wal_flush_lsn()::text AS lsn")).rows[0];
  const before = await flushedTo();
  await one.mill.append(stream("seen"), paid, { tx: session });
  await reaches(reader, 34n);
  const seen = await planAbove(reader, 33n);
  expect(seen.window.events).toHaveLength(1);
  expect(await flushedTo()).toEqual(before);
  await restart();
  expect(await positionsIn(one.database)).toHaveLength(33);
  expect((await one.mill.append(stream("after"), paid)).position).toBe(34n);
  return { one, reader, seen };
}

async function restart(): Promise<void> {
  await server.crash();
  await server.start();
}

/** With a real worker: nothing that exists is missing, repeated or out of order. */
async function expectAllHandled({ database, mill, handled, all }: Scene): Promise<void> {
  await database.pool.query("DELETE FROM tidemill.worker_nodes");
  await mill.startWorker({ ...FAST, consumers: [all] });
  const positions = await positionsIn(database);
  await mill.waitFor(all, { position: BigInt(positions.at(-1) ?? 0) }, { timeoutMs: 10_000 });
  expect(await handled.by("all")).toEqual(positions);
  expect(await falseGapsIn(database)).toEqual([]);
}

describe("after a crash", () => {
  it("S10b: no position below a closed ceiling is handed out again", async () => {
    const one = await scene(33);
    await drawInVain(one, 1); // Position 34, the first beyond what the sequence has logged.
    const reader = await one.readAt(34n);
    const dead = await planAbove(reader, 33n);
    expect(dead.window).toEqual({ after: 33n, target: 34n, events: [] });
    await restart();
    const after = await one.mill.append(stream("after"), paid);
    expect(after.position).toBeGreaterThan(34n);
    expect((await one.run(dead)).kind).toBe("committed");
    await expectAllHandled(one);
    expect((await gapsIn(one.database))[0]).toMatchObject({ gap: 34, how: "epoch", missing: 1 });
  });

  it.each(["on", "off"])(
    "of one backend, no closed position is handed out again (synchronous_commit %s)",
    async (synchronousCommit) => {
      const one = await scene(0);
      const name = new URL(one.database.url).pathname.slice(1);
      await one.database.pool.query(
        `ALTER DATABASE ${name} SET synchronous_commit = ${synchronousCommit}`,
      );
      await drawInVain(one, 3);
      const reader = await one.readAt(3n);
      const dead = await planAbove(reader, 0n);
      expect(dead.window).toEqual({ after: 0n, target: 3n, events: [] });
      const victim = await one.database.session();
      process.kill(await backendOf(victim), "SIGKILL");
      // The other backends are told to go; the server itself stays.
      await eventually(() => expect(reader.frontier).toBeUndefined());
      const after = await eventually(() => one.mill.append(stream("after"), paid));
      expect(after.position).toBeGreaterThan(3n);
      expect((await eventually(() => one.run(dead))).kind).toBe("committed");
      await expectAllHandled(one);
    },
  );

  it("an event that was seen and taken back is not handled, and its successor is", async () => {
    const { one, reader, seen } = await eventually(seeWhatIsTakenBack, { timeoutMs: 30_000 });
    // Also by a batch that took its locks before it knew what had been read.
    expect((await one.run(Promise.resolve(seen))).kind).toBe("vanished");
    expect((await one.run(seen)).kind).toBe("vanished");
    await reaches(reader, 34n);
    expect((await planAbove(reader, 33n)).window.events[0]?.streamId).toBe("after");
    await expectAllHandled(one);
  });

  it("a prepared append is still waited for, and delivered when it is committed", async () => {
    const one = await scene(0);
    const { database, mill, handled, all } = one;
    const session = await database.session();
    await session.query("BEGIN");
    await mill.append(stream(1), paid, { tx: session });
    await session.query("PREPARE TRANSACTION 'held'");
    await mill.append(stream(2), paid);
    await restart();
    await database.pool.query("DELETE FROM tidemill.worker_nodes");
    await mill.startWorker({ ...FAST, consumers: [all] });
    await eventually(() => {
      // Long enough for the proof by lock holders: this one has lost the name it had.
      expect(mill.metrics.frontierHeldSeconds.value() ?? 0).toBeGreaterThan(1.5);
    });
    expect(await handled.by("all")).toEqual([]);
    await database.pool.query("COMMIT PREPARED 'held'");
    await mill.waitFor(all, { position: 2n }, { timeoutMs: 10_000 });
    expect(await handled.by("all")).toEqual([1, 2]);
  });
});
