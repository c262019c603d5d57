import { describe, expect, it } from "vitest";
import type { Worker } from "../../../src/index.ts";
import { consumerContract } from "../../contract/consumers.ts";
import {
  appendEvents,
  createHandled,
  eventuallyOwn,
  expectOnceInOrder,
} from "../../support/cluster.ts";
import { type TestDatabase, testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { FAST } from "../../support/options.ts";
import { recording } from "../../support/recording.ts";

consumerContract("on a direct connection", {
  options: { ...FAST, leaderStrategy: "advisory", dispatcherStrategy: "poll" },
  connect: (database, options) => database.connect(options),
});

/** A late heartbeat on a busy machine is no death here. */
const CALM = { ...FAST, heartbeatTimeout: 5_000 };

interface LockHolder {
  readonly pid: number;
  readonly key: string;
}

async function readLockHolders({ pool }: TestDatabase): Promise<LockHolder[]> {
  const { rows } = await pool.query<LockHolder>(
    `SELECT pid, ((classid::bigint << 32) | objid::bigint)::text AS key
       FROM pg_locks
      WHERE locktype = 'advisory' AND granted
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`,
  );
  return rows;
}

async function terminate({ pool }: TestDatabase, pid: number): Promise<void> {
  await pool.query("SELECT pg_terminate_backend($1)", [pid]);
}

describe("leadership by advisory lock", () => {
  // TestLeaderFailover_AdvisoryLock_UncleanCrash
  it("passes to a standby when the server ends the session that held the lock", async () => {
    const database = await testDatabase();
    const consumers = [recording("heir")];
    const mill = await database.connect();
    const first = await mill.startWorker({ ...CALM, consumers });
    await eventually(() => expect(first.isLeader).toBe(true));
    const [held] = await readLockHolders(database);
    await first.stop();
    // A leader that can do nothing any more, but whose session is there.
    const crashed = await database.session();
    await crashed.query("SELECT pg_advisory_lock($1)", [held!.key]);
    const tries: number[] = [];
    const standby = await mill.startWorker({ ...CALM, consumers });
    // Followers look for the lead at least every rebalance interval: three heartbeats see a try.
    await eventually(async () => {
      tries.push(await readBeats(database, standby.id));
      expect(new Set(tries).size).toBeGreaterThan(3);
    });
    expect(standby.isLeader).toBe(false);
    const [holder] = await readLockHolders(database);
    await terminate(database, holder!.pid);
    await eventually(() => expect(standby.isLeader).toBe(true), { timeoutMs: 2_000 });
    await eventuallyOwn(database.pool, [[standby, 1]]);
  });

  it("goes on in a new term, held by one, when the leader loses its session", async () => {
    const database = await testDatabase();
    await createHandled(database);
    const names = ["consumer-1", "consumer-2"];
    const consumers = names.map((name) => recording(name));
    const workers: Worker[] = [];
    for (let count = 0; count < 2; count += 1) {
      const mill = await database.connect();
      workers.push(await mill.startWorker({ ...CALM, consumers }));
    }
    await eventuallyOwn(
      database.pool,
      workers.map((worker) => [worker, 1] as const),
    );
    const mill = await database.connect();
    const before = await mill.status();
    const [holder] = await readLockHolders(database);
    await terminate(database, holder!.pid);
    await eventually(async () => {
      const { leader } = await mill.status();
      expect(leader.term).toBeGreaterThan(before.leader.term);
      const leaders = workers.filter((worker) => worker.isLeader).map((worker) => worker.id);
      expect(leaders).toEqual([leader.workerId]);
    });
    expect(await readLockHolders(database)).toHaveLength(1);
    const positions = await appendEvents(mill, 2);
    for (const name of names) await mill.waitFor(name, { position: positions.at(-1)! });
    await expectOnceInOrder(database.pool, names, positions);
  });
});

async function readBeats({ pool }: TestDatabase, workerId: string): Promise<number> {
  const { rows } = await pool.query<{ beat: number }>(
    `SELECT extract(epoch FROM heartbeat_at)::float8 AS beat
       FROM tidemill.worker_nodes WHERE worker_id = $1`,
    [workerId],
  );
  return rows[0]?.beat ?? 0;
}

describe("listening", () => {
  // TestDispatcher_NotifyDispatcher_Reconnection
  it("connects again when the server ends its session, and is as quick as before", async () => {
    const database = await testDatabase();
    await createHandled(database);
    const options = { notifyChannel: "orders_appended" };
    const mill = await database.connect(options);
    await mill.startWorker({
      ...CALM,
      dispatcherStrategy: "notify",
      pollInterval: 5_000,
      maxPollInterval: 30_000,
      consumers: [recording("listener")],
    });
    const appender = await database.connect(options);
    const [first] = await appendEvents(appender, 1);
    await appender.waitFor("listener", { position: first! });
    const readListeners = async (): Promise<number[]> => {
      const { rows } = await database.pool.query<{ pid: number }>(
        `SELECT pid FROM pg_stat_activity
          WHERE datname = current_database() AND application_name = 'tidemill listener'
            AND query ~ '^(LISTEN|SELECT 1$)'`,
      );
      return rows.map((row) => row.pid);
    };
    const [before] = await eventually(async () => {
      const pids = await readListeners();
      expect(pids).toHaveLength(1);
      return pids;
    });
    await terminate(database, before!);
    await eventually(async () => {
      const pids = await readListeners();
      expect(pids).toHaveLength(1);
      expect(pids).not.toContain(before);
    });
    // The look each second would need five on average: only notifications can be this quick.
    const positions = [first!];
    const startedAt = performance.now();
    for (let count = 0; count < 10; count += 1) {
      const [position] = await appendEvents(appender, 1);
      await appender.waitFor("listener", { position: position! });
      positions.push(position!);
    }
    expect(performance.now() - startedAt).toBeLessThan(2_000);
    await expectOnceInOrder(database.pool, ["listener"], positions);
  });
});
