import { randomUUID } from "node:crypto";
import { describe, expect, it } from "vitest";
import type { Consumer, Logger, Tidemill, Worker, WorkerOptions } from "../../src/index.ts";
import {
  appendEvents,
  createHandled,
  eventuallyOwn,
  expectOnceInOrder,
  readCheckpoint,
  readHandled,
  readWorkerIds,
  waitForAll,
} from "../support/cluster.ts";
import { type TestDatabase, testDatabase } from "../support/database.ts";
import { eventually } from "../support/eventually.ts";
import { recordHandled, recording } from "../support/recording.ts";
import { type ContractSetup, describeIn } from "./setup.ts";

interface Cluster {
  readonly database: TestDatabase;
  /** Appends and waits; its process-local wake-ups reach none of the workers. */
  readonly mill: Tidemill;
  /** A worker on connections of its own. */
  readonly start: (
    consumers: readonly Consumer[],
    options?: Partial<WorkerOptions>,
  ) => Promise<Worker>;
}

/** A late heartbeat on a busy machine is no death in tests that are not about deaths. */
const CALM = { heartbeatTimeout: 5_000 };

const FOUR = ["consumer-1", "consumer-2", "consumer-3", "consumer-4"];

const four = (): Consumer[] => FOUR.map((name) => recording(name));

/** What every way of connecting must keep: the source's integration tests, as our sentences. */
export function consumerContract(name: string, setup: ContractSetup): void {
  describeIn(setup, name, () => {
    const newCluster = async (): Promise<Cluster> => {
      const { connect, options } = setup;
      const database = await testDatabase();
      await createHandled(database);
      return {
        database,
        mill: await connect(database),
        start: async (consumers, more) => {
          const own = await connect(database);
          return await own.startWorker({ ...options, ...CALM, consumers, ...more });
        },
      };
    };

    describe("processing", () => processingTests(newCluster));
    describe("membership", () => membershipTests(newCluster));
    describe("gaps", () => gapTests(newCluster));
    describe("leadership", () => leadershipTests(newCluster));
    describe("leadership by lease", () => leaseTests(newCluster));
  });
}

function processingTests(newCluster: () => Promise<Cluster>): void {
  // TestWorker_SingleWorkerMultipleConsumers
  it("gives scoped consumers their events and every consumer the same checkpoint", async () => {
    const { database, mill, start } = await newCluster();
    await start([
      recording("everything"),
      recording("accounts", { aggregateTypes: ["Account"] }),
      recording("orders", { aggregateTypes: ["Order"] }),
    ]);
    const accounts = await appendEvents(mill, 2, "Account");
    const orders = await appendEvents(mill, 2, "Order");
    accounts.push(...(await appendEvents(mill, 1, "Account")));
    const latest = await mill.latestPosition();
    await waitForAll(mill, ["everything", "accounts", "orders"], latest);
    const all = [...accounts, ...orders].sort((a, b) => Number(a - b));
    await expectOnceInOrder(database.pool, ["everything"], all);
    await expectOnceInOrder(database.pool, ["accounts"], accounts);
    await expectOnceInOrder(database.pool, ["orders"], orders);
    for (const name of ["everything", "accounts", "orders"]) {
      expect(await readCheckpoint(database.pool, name)).toBe(latest);
    }
  });

  // TestDispatcher_WakeupDispatcher_IdleConsumersWakePromptly
  it("wakes an idle consumer long before its own poll", async () => {
    const { mill, start } = await newCluster();
    await start([recording("sleeper")], { pollInterval: 5_000, maxPollInterval: 30_000 });
    const [first] = await appendEvents(mill, 1);
    await mill.waitFor("sleeper", { position: first! });
    const [second] = await appendEvents(mill, 1);
    await mill.waitFor("sleeper", { position: second! }, { timeoutMs: 2_000 });
  });

  // TestTransactionalIntegrity_MidBatchFailureRollsBackAndRetriesFromCheckpoint
  it("rolls a batch back when an event fails and tries again from the checkpoint", async () => {
    const { database, mill, start } = await newCluster();
    const positions = await appendEvents(mill, 3);
    const attempts: bigint[] = [];
    let isBroken = true;
    const fragile = recording("fragile", {
      handle: async (event, context) => {
        attempts.push(event.position);
        await recordHandled(event, context);
        if (isBroken && event.position === positions[1]) throw new Error("second event");
      },
    });
    await start([fragile], { maxConsecutiveFailures: 1_000 });
    const firstAttempts = (): number => attempts.filter((one) => one === positions[0]).length;
    await eventually(() => expect(firstAttempts()).toBeGreaterThanOrEqual(2));
    expect(await readHandled(database.pool)).toEqual([]);
    expect(await readCheckpoint(database.pool, "fragile")).toBe(0n);
    expect(attempts).not.toContain(positions[2]);
    isBroken = false;
    await mill.waitFor(fragile, { position: positions[2]! });
    await expectOnceInOrder(database.pool, ["fragile"], positions);
  });

  // TestCheckpointCorrectness_RestartResumesFromPersistedCheckpoint
  it("resumes after a restart with what was appended meanwhile, and nothing else", async () => {
    const { database, mill, start } = await newCluster();
    const names = ["consumer-1", "consumer-2"];
    const first = await start(names.map((one) => recording(one)));
    const before = await appendEvents(mill, 3);
    await waitForAll(mill, names, before.at(-1)!);
    await first.stop();
    const after = await appendEvents(mill, 2);
    const second = await start(names.map((one) => recording(one)));
    await waitForAll(mill, names, after.at(-1)!);
    await expectOnceInOrder(database.pool, names, [...before, ...after]);
    for (const row of await readHandled(database.pool)) {
      expect(row.worker).toBe(after.includes(row.position) ? second.id : first.id);
    }
  });

  // TestWorker_SplitBrain_OwnershipLost
  it("handles nothing more of a consumer that the database gave to another", async () => {
    const { database, mill, start } = await newCluster();
    const worker = await start([recording("contested")]);
    const [before] = await appendEvents(mill, 1);
    await mill.waitFor("contested", { position: before! });
    const other = randomUUID();
    // Alive for an hour, so that the leader leaves it what it has. Not announced to the owner.
    await database.pool.query(
      `INSERT INTO tidemill.worker_nodes (worker_id, heartbeat_at)
       VALUES ($1, NOW() + INTERVAL '1 hour')`,
      [other],
    );
    const session = await database.session();
    await session.query("BEGIN");
    await session.query("UPDATE tidemill.consumer_assignments SET worker_id = $1", [other]);
    await mill.append({ type: "Order", id: "late" }, [{ type: "Late" }], { tx: session });
    await session.query("COMMIT");
    await eventually(() => expect(worker.assigned).toEqual([]));
    await expectOnceInOrder(database.pool, ["contested"], [before!]);
    expect(await readCheckpoint(database.pool, "contested")).toBe(before);
  });
}

function membershipTests(newCluster: () => Promise<Cluster>): void {
  // TestRebalance_ScaleUp_WorkersReassignWithoutGapsOrDuplication
  it("shares consumers with a worker that joins, without a gap and without a double", async () => {
    const { database, mill, start } = await newCluster();
    const first = await start(four());
    await eventuallyOwn(database.pool, [[first, 4]]);
    const before = await appendEvents(mill, 4);
    await waitForAll(mill, FOUR, before.at(-1)!);
    const second = await start(four());
    await eventuallyOwn(database.pool, [
      [first, 2],
      [second, 2],
    ]);
    const after = await appendEvents(mill, 4);
    await waitForAll(mill, FOUR, after.at(-1)!);
    await expectOnceInOrder(database.pool, FOUR, [...before, ...after]);
    const rows = await readHandled(database.pool);
    const late = rows.filter((row) => after.includes(row.position)).map((row) => row.worker);
    expect(new Set(late)).toEqual(new Set([first.id, second.id]));
  });

  // TestRebalance_ScaleDown_WorkerStops_SurvivorOwnsAllConsumers
  it("gives a stopped worker's consumers to the one that stays", async () => {
    const { database, mill, start } = await newCluster();
    const first = await start(four());
    const second = await start(four());
    await eventuallyOwn(database.pool, [
      [first, 2],
      [second, 2],
    ]);
    const before = await appendEvents(mill, 2);
    await waitForAll(mill, FOUR, before.at(-1)!);
    await second.stop();
    expect(await readWorkerIds(database.pool)).toEqual([first.id]);
    await eventuallyOwn(database.pool, [[first, 4]]);
    const after = await appendEvents(mill, 2);
    await waitForAll(mill, FOUR, after.at(-1)!);
    await expectOnceInOrder(database.pool, FOUR, [...before, ...after]);
    const rows = await readHandled(database.pool);
    const late = rows.filter((row) => after.includes(row.position)).map((row) => row.worker);
    expect(new Set(late)).toEqual(new Set([first.id]));
  });

  const leaveRegistration = async (database: TestDatabase, ageSeconds: number): Promise<string> => {
    const gone = randomUUID();
    await database.pool.query(
      `WITH node AS (
         INSERT INTO tidemill.worker_nodes (worker_id, heartbeat_at)
         VALUES ($1, NOW() - make_interval(secs => $2)) RETURNING worker_id
       )
       INSERT INTO tidemill.consumer_assignments SELECT 'orphan', worker_id FROM node`,
      [gone, ageSeconds],
    );
    return gone;
  };

  // TestWorkerStartupCleanup_RemovesVeryStaleWorkerRows
  it("removes registrations older than twice the timeout when it starts", async () => {
    const { database, start } = await newCluster();
    await leaveRegistration(database, 5);
    const worker = await start([recording("orphan")], { heartbeatTimeout: 2_000 });
    expect(await readWorkerIds(database.pool)).toEqual([worker.id]);
    await eventuallyOwn(database.pool, [[worker, 1]]);
  });

  // TestWorkerStartupCleanup_PreservesRowsNewerThanCleanupThreshold
  it("keeps a younger registration when it starts, and still takes its consumers", async () => {
    const { database, start } = await newCluster();
    const gone = await leaveRegistration(database, 3);
    const worker = await start([recording("orphan")], { heartbeatTimeout: 2_000 });
    expect(await readWorkerIds(database.pool)).toEqual([gone, worker.id].sort());
    await eventuallyOwn(database.pool, [[worker, 1]]);
  });
}

function gapTests(newCluster: () => Promise<Cluster>): void {
  const readSkips = async (database: TestDatabase): Promise<unknown[]> => {
    const { rows } = await database.pool.query(
      `SELECT consumer_name, gap_position::int, skip_to_position::int,
              highest_visible_position::int
         FROM tidemill.consumer_gap_skips ORDER BY id`,
    );
    return rows;
  };

  // TestGapHandling_LowerPositionCommitsLateBeforeThreshold_NoSkip
  it("waits for a lower position that commits late, then handles all in order", async () => {
    const { database, mill, start } = await newCluster();
    const raised: string[] = [];
    const logger = alarms((message) => raised.push(message));
    const worker = await start([recording("patient")], { logger, staleGapThreshold: 400 });
    await eventuallyOwn(database.pool, [[worker, 1]]);
    const session = await database.session();
    await session.query("BEGIN");
    const held = await mill.append({ type: "Order", id: "held" }, [{ type: "Held" }], {
      tx: session,
    });
    const later = await appendEvents(mill, 3);
    expect(later[0]).toBeGreaterThan(held.position);
    // A consumer that did not wait would be at the end long before the alarm for the open gap.
    await eventually(() => expect(raised).not.toEqual([]));
    expect(await readHandled(database.pool)).toEqual([]);
    expect(await readCheckpoint(database.pool, "patient")).toBe(0n);
    await session.query("COMMIT");
    await mill.waitFor("patient", { position: later.at(-1)! });
    await expectOnceInOrder(database.pool, ["patient"], [held.position, ...later]);
    expect(await readSkips(database)).toEqual([]);
  });

  it("passes what was rolled back, in part or as a whole, and handles the rest", async () => {
    const { database, mill, start } = await newCluster();
    await start([recording("patient")]);
    const gone = { type: "Order", id: "gone" };
    const kept = await mill.transaction(async (tx) => {
      await tx.query("SAVEPOINT before");
      await mill.append(gone, [{ type: "Gone" }, { type: "Gone" }], { tx });
      await tx.query("ROLLBACK TO before");
      return await mill.append({ type: "Order", id: "kept" }, [{ type: "Kept" }], { tx });
    });
    const undone = mill.transaction(async (tx) => {
      await mill.append(gone, [{ type: "Gone" }], { tx });
      throw new Error("changed my mind");
    });
    await expect(undone).rejects.toThrow("changed my mind");
    const later = await appendEvents(mill, 2);
    expect([kept.position, ...later]).toEqual([3n, 5n, 6n]);
    await mill.waitFor("patient", { position: 6n });
    await expectOnceInOrder(database.pool, ["patient"], [3n, 5n, 6n]);
  });

  const unsafe: Partial<WorkerOptions> = {
    gapPolicy: "unsafe-time",
    staleGapThreshold: 250,
    pollInterval: 500,
    maxPollInterval: 500,
    batchPause: 500,
  };

  // TestGapHandling_StaleGapAfterThreshold_AdvancesBySafeHarbor
  it("passes a stale gap up to the safe harbor when told to be unsafe", async () => {
    const { database, mill, start } = await newCluster();
    const worker = await start([recording("hasty")], { ...unsafe, staleGapHarborLag: 1 });
    await eventuallyOwn(database.pool, [[worker, 1]]);
    const session = await database.session();
    await session.query("BEGIN");
    const held = await mill.append({ type: "Invoice", id: "held" }, [{ type: "Held" }], {
      tx: session,
    });
    const later = await appendEvents(mill, 4, "Invoice");
    await mill.waitFor("hasty", { position: later[3]! });
    await session.query("ROLLBACK");
    expect(await readSkips(database)).toEqual([
      {
        consumer_name: "hasty",
        gap_position: Number(held.position),
        skip_to_position: Number(later[2]),
        highest_visible_position: Number(later[3]),
      },
    ]);
    const rows = await readHandled(database.pool);
    const skipping = rows.filter((row) => row.batch === rows[0]?.batch);
    expect(skipping.map((row) => row.position)).toEqual(later.slice(0, 3));
    await expectOnceInOrder(database.pool, ["hasty"], later);
  });

  // TestGapHandling_StaleGapAfterThreshold_AdvancesWithSparseVisibleWindowUnderDefaultLag
  it("passes a stale gap to the only event behind it under the default lag", async () => {
    const { database, mill, start } = await newCluster();
    const worker = await start([recording("hasty")], unsafe);
    await eventuallyOwn(database.pool, [[worker, 1]]);
    const session = await database.session();
    await session.query("BEGIN");
    const held = await mill.append({ type: "Invoice", id: "held" }, [{ type: "Held" }], {
      tx: session,
    });
    const [later] = await appendEvents(mill, 1, "Invoice");
    await mill.waitFor("hasty", { position: later! });
    await session.query("ROLLBACK");
    expect(await readSkips(database)).toEqual([
      {
        consumer_name: "hasty",
        gap_position: Number(held.position),
        skip_to_position: Number(later),
        highest_visible_position: Number(later),
      },
    ]);
    await expectOnceInOrder(database.pool, ["hasty"], [later!]);
    expect(await readCheckpoint(database.pool, "hasty")).toBe(later);
  });
}

function leadershipTests(newCluster: () => Promise<Cluster>): void {
  // TestLeaderFailover_NewLeaderElectedAndRebalancingContinues (direct, advisory)
  // TestLeaseLeaderFailover_NewLeaderElectedAndRebalancingContinues (pooled, lease)
  it("elects another leader when the leader stops, who goes on balancing", async () => {
    const { database, mill, start } = await newCluster();
    const first = await start(four());
    await eventually(() => expect(first.isLeader).toBe(true));
    const second = await start(four());
    await eventuallyOwn(database.pool, [
      [first, 2],
      [second, 2],
    ]);
    const before = await mill.status();
    expect(before.leader.workerId).toBe(first.id);
    await first.stop();
    await eventuallyOwn(database.pool, [[second, 4]]);
    await eventually(async () => {
      const { leader } = await mill.status();
      expect(leader.workerId).toBe(second.id);
      expect(leader.term).toBeGreaterThan(before.leader.term);
    });
    const third = await start(four());
    await eventuallyOwn(database.pool, [
      [second, 2],
      [third, 2],
    ]);
    const positions = await appendEvents(mill, 2);
    await waitForAll(mill, FOUR, positions.at(-1)!);
    await expectOnceInOrder(database.pool, FOUR, positions);
    const workers = (await readHandled(database.pool)).map((row) => row.worker);
    expect(new Set(workers)).toEqual(new Set([second.id, third.id]));
  });
}

function leaseTests(newCluster: () => Promise<Cluster>): void {
  const lease = { leaderStrategy: "lease" } as const;
  const quickLease = { ...lease, heartbeatTimeout: 500 };

  const readLease = async (database: TestDatabase): Promise<unknown[]> => {
    const { rows } = await database.pool.query(
      `SELECT leader_id, expires_at > NOW() AS is_live FROM tidemill.worker_leader_election`,
    );
    return rows;
  };

  // TestLeaseLeader_UncleanCrash_SurvivorTakesOver
  it("leaves a live lease alone and takes over once it has expired", async () => {
    const { database, mill, start } = await newCluster();
    const crashed = randomUUID();
    await database.pool.query("INSERT INTO tidemill.worker_nodes VALUES ($1)", [crashed]);
    await database.pool.query("INSERT INTO tidemill.consumer_assignments VALUES ('heir', $1)", [
      crashed,
    ]);
    await database.pool.query(
      `INSERT INTO tidemill.worker_leader_election
       VALUES ('leader', $1, NOW() + INTERVAL '1200 ms')`,
      [crashed],
    );
    const expiry = await database.pool.query<{ expires_at: Date }>(
      "SELECT expires_at FROM tidemill.worker_leader_election",
    );
    const standby = await start([recording("heir")], quickLease);
    await eventuallyOwn(database.pool, [[standby, 1]]);
    const { rows } = await database.pool.query<{ acquired_at: Date; created_at: Date }>(
      `SELECT acquired_at, created_at FROM tidemill.leader_term, tidemill.worker_nodes
        WHERE worker_id = $1 AND leader_id = $1`,
      [standby.id],
    );
    const expiresAt = expiry.rows[0]!.expires_at;
    expect(rows[0]!.created_at.getTime()).toBeLessThan(expiresAt.getTime());
    expect(rows[0]!.acquired_at.getTime()).toBeGreaterThanOrEqual(expiresAt.getTime());
    const positions = await appendEvents(mill, 1);
    await waitForAll(mill, ["heir"], positions[0]!);
  });

  // TestLeaseLeader_CascadingDelete_SchemaConstraint
  it("ends the lease with the registration of its holder", async () => {
    const { database } = await newCluster();
    const leader = randomUUID();
    await database.pool.query("INSERT INTO tidemill.worker_nodes VALUES ($1)", [leader]);
    await database.pool.query(
      "INSERT INTO tidemill.worker_leader_election VALUES ('leader', $1, NOW())",
      [leader],
    );
    await database.pool.query("DELETE FROM tidemill.worker_nodes");
    expect(await readLease(database)).toEqual([]);
  });

  // TestLeaseLeader_ReleaseLease_Success
  it("writes nobody into the lease that a stopping leader gives back", async () => {
    const { database, start } = await newCluster();
    const worker = await start([recording("only")], lease);
    await eventually(() => expect(worker.isLeader).toBe(true));
    expect(await readLease(database)).toEqual([{ leader_id: worker.id, is_live: true }]);
    await worker.stop();
    expect(await readLease(database)).toEqual([{ leader_id: null, is_live: false }]);
  });

  // TestLeaseLeader_HeartbeatRenewalHiccupAndSelfDemotion
  it("elects another within two seconds when the leader's registration is deleted", async () => {
    const { database, start } = await newCluster();
    const first = await start(four(), lease);
    await eventually(() => expect(first.isLeader).toBe(true));
    const second = await start(four(), lease);
    expect(second.isLeader).toBe(false);
    await database.pool.query("DELETE FROM tidemill.worker_nodes WHERE worker_id = $1", [first.id]);
    await eventually(() => expect(second.isLeader).toBe(true), { timeoutMs: 2_000 });
    await eventually(() => expect(first.isLeader).toBe(false));
    await eventuallyOwn(database.pool, [[second, 4]]);
  });

  it("renews the lease in time however rarely it balances", async () => {
    const { database, start } = await newCluster();
    const rarely = { ...quickLease, rebalanceInterval: 30_000 };
    const workers = [
      await start([recording("steady")], rarely),
      await start([recording("steady")], rarely),
    ];
    // One term lasts three lives of the lease, which is shorter than the heartbeat timeout.
    await eventually(async () => {
      const { rows } = await database.pool.query<{ leader_id: string }>(
        `SELECT term.leader_id
           FROM tidemill.leader_term AS term
           JOIN tidemill.worker_leader_election AS lease USING (leader_id)
          WHERE term.acquired_at < NOW() - INTERVAL '1500 ms' AND lease.expires_at > NOW()`,
      );
      expect(workers.map((one) => one.id)).toContain(rows[0]?.leader_id);
    });
  });
}

/** A logger that only calls for the alarm that a gap stays open. */
function alarms(onAlarm: (message: string) => void): Logger {
  const ignore = (): void => {};
  const warn = (_: object, message: string): void => {
    if (message === "consumer gap became stale") onAlarm(message);
  };
  return { debug: ignore, info: ignore, error: ignore, warn };
}
