import type pg from "pg";
import { describe, expect, it } from "vitest";
import {
  type Consumer,
  consumer,
  type Logger,
  RegistrationLostError,
  type Worker,
  type WorkerOptions,
} from "../../../src/index.ts";
import {
  appendEvents,
  createHandled,
  eventuallyOwn,
  expectOnceInOrder,
  keepJournal,
  readHandled,
  readJournal,
  readOwners,
  readServerTime,
  readWorkerIds,
  steadyAppends,
  waitForAll,
} from "../../support/cluster.ts";
import { onCleanup, type TestDatabase, testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { FAST } from "../../support/options.ts";
import { recordHandled, recording } from "../../support/recording.ts";
import { startWorkerProcess, type WorkerProcess } from "../../support/worker-processes.ts";

const NAMES = ["consumer-1", "consumer-2", "consumer-3", "consumer-4", "consumer-5", "consumer-6"];

/** The product's defaults, with heartbeats quick enough for a test. */
const QUICK = { heartbeatInterval: 600, heartbeatTimeout: 2_000 } as const;

/** A late heartbeat on a busy machine is no death here. */
const CALM = { ...FAST, heartbeatInterval: 200, heartbeatTimeout: 5_000 };

async function newDatabase(): Promise<TestDatabase> {
  const database = await testDatabase();
  await createHandled(database);
  await keepJournal(database);
  return database;
}

const ownedBy = async (pool: pg.Pool, id: string): Promise<string[]> =>
  [...(await readOwners(pool))].filter(([, owner]) => owner === id).map(([name]) => name);

/** How long after `since` a worker other than `id` first handled an event of the consumer. */
async function elsewhereAfterMs(
  pool: pg.Pool,
  name: string,
  id: string,
  since: Date,
): Promise<number> {
  return await eventually(async () => {
    const rows = await readHandled(pool, name);
    const next = rows.find((row) => row.worker !== id && row.at > since);
    if (next === undefined) throw new Error(`nobody else has handled ${name}`);
    return next.at.getTime() - since.getTime();
  });
}

describe("worker processes", () => {
  const startThree = async (
    database: TestDatabase,
    options: Omit<WorkerOptions, "consumers">,
  ): Promise<{ leader: WorkerProcess; follower: WorkerProcess }> => {
    const start = (): Promise<WorkerProcess> =>
      startWorkerProcess({ url: database.url, consumers: NAMES, options });
    const processes = await Promise.all([start(), start(), start()]);
    await eventuallyOwn(
      database.pool,
      processes.map((one) => [one, 2] as const),
    );
    const { rows } = await database.pool.query<{ leader_id: string }>(
      "SELECT leader_id FROM tidemill.leader_term",
    );
    const leader = processes.find((one) => one.id === rows[0]?.leader_id);
    const follower = processes.find((one) => one !== leader);
    if (leader === undefined || follower === undefined) throw new Error("nobody leads");
    return { leader, follower };
  };

  it.each([
    ["the leader by advisory lock", "leader", "advisory"],
    ["the leader by lease", "leader", "lease"],
    ["another worker", "follower", "advisory"],
  ] as const)(
    "continue what %s had within the heartbeat timeout and a second of its kill -9",
    async (_, role, leaderStrategy) => {
      const database = await newDatabase();
      const { pool } = database;
      const mill = await database.connect();
      const victim = (await startThree(database, { ...QUICK, leaderStrategy }))[role];
      const appends = steadyAppends(mill, 25);
      await eventually(async () => {
        const rows = await readHandled(pool);
        expect(new Set(rows.map((row) => row.consumer)).size).toBe(NAMES.length);
      });
      const orphans = await ownedBy(pool, victim.id);
      expect(orphans).toHaveLength(2);
      const killedAt = await readServerTime(pool);
      victim.kill("SIGKILL");
      for (const name of orphans) {
        const afterMs = await elsewhereAfterMs(pool, name, victim.id, killedAt);
        expect(afterMs, name).toBeLessThan(QUICK.heartbeatTimeout + 1_000);
      }
      const positions = await appends.stop();
      await waitForAll(mill, NAMES, positions.at(-1)!);
      await expectOnceInOrder(pool, NAMES, positions);
      await eventually(async () => {
        const dead = (await mill.status()).workers.find((one) => one.id === victim.id);
        expect(dead).toMatchObject({ status: "dead", isLeader: false, assigned: [] });
      });
    },
  );

  it("take over within a second of the release when the leader is told to stop", async () => {
    const database = await newDatabase();
    const { pool } = database;
    const mill = await database.connect();
    const { leader } = await startThree(database, QUICK);
    const appends = steadyAppends(mill, 25);
    await eventually(async () => expect(await readHandled(pool)).not.toEqual([]));
    const released = await ownedBy(pool, leader.id);
    expect(released).toHaveLength(2);
    leader.kill("SIGTERM");
    expect(await leader.ended).toEqual({ code: 0, said: ["starting", "stopping", "stopped"] });
    expect(await readWorkerIds(pool)).not.toContain(leader.id);
    const journal = await readJournal(pool);
    for (const name of released) {
      const release = journal.find((row) => row.subject === name && row.before === leader.id);
      const afterMs = await elsewhereAfterMs(pool, name, leader.id, release!.at);
      expect(afterMs, name).toBeLessThan(1_000);
    }
    const positions = await appends.stop();
    await waitForAll(mill, NAMES, positions.at(-1)!);
    await expectOnceInOrder(pool, NAMES, positions);
  });
});

describe("a worker whose registration was deleted", () => {
  it("ends with RegistrationLostError after two heartbeats while others go on", async () => {
    const database = await newDatabase();
    const { pool } = database;
    const names = NAMES.slice(0, 2);
    const consumers = names.map((name) => recording(name));
    const missed: unknown[] = [];
    const logger: Logger = {
      debug: () => {},
      info: () => {},
      warn: () => {},
      error: (fields, message) => {
        if (message === "worker registration is missing") missed.push(fields);
      },
    };
    const mill = await database.connect();
    const lost = mill.worker({ ...CALM, logger, consumers });
    const outcome = lost.start().catch((error: unknown) => error);
    await eventually(() => expect(lost.isLeader).toBe(true));
    const other = await mill.startWorker({ ...CALM, consumers });
    await eventuallyOwn(pool, [
      [lost, 1],
      [other, 1],
    ]);
    await pool.query("DELETE FROM tidemill.worker_nodes WHERE worker_id = $1", [lost.id]);
    expect(await outcome).toBeInstanceOf(RegistrationLostError);
    expect(missed).toMatchObject([{ misses: 1 }, { misses: 2 }]);
    expect(lost.assigned).toEqual([]);
    await eventuallyOwn(pool, [[other, 2]]);
    const positions = await appendEvents(mill, 2);
    await waitForAll(mill, names, positions.at(-1)!);
    await expectOnceInOrder(pool, names, positions);
    expect(await readWorkerIds(pool)).toEqual([other.id]);
  });
});

describe("capabilities", () => {
  it.each(["sticky", "round-robin"] as const)(
    "keep a consumer from workers that do not have it, and show it when nobody does (%s)",
    async (assignment) => {
      const database = await newDatabase();
      const { pool } = database;
      const mill = await database.connect();
      const options = { ...CALM, assignment };
      const both = [recording("common"), recording("special")];
      const able = await mill.startWorker({ ...options, consumers: both });
      await eventuallyOwn(pool, [[able, 2]]);
      const plain = await mill.startWorker({ ...options, consumers: [recording("common")] });
      await eventually(async () => {
        const owners = await readOwners(pool);
        expect(owners.get("special")).toBe(able.id);
      });
      const [first] = await appendEvents(mill, 1);
      await waitForAll(mill, ["common", "special"], first!);
      await able.stop();
      await eventually(async () => {
        const consumers = (await mill.status()).consumers;
        expect(consumers).toMatchObject([
          { name: "common", state: "running", workerId: plain.id },
          { name: "special", state: "unassigned", workerId: undefined, checkpoint: first },
        ]);
      });
      await eventually(() => expect(mill.metrics.unassignable.value()).toBe(1));
      const second = await mill.startWorker({ ...options, consumers: both });
      const [last] = await appendEvents(mill, 1);
      await waitForAll(mill, ["common", "special"], last!);
      await expectOnceInOrder(pool, ["common", "special"], [first!, last!]);
      const journal = await readJournal(pool);
      const given = journal.filter((row) => row.what === "owner" && row.subject === "special");
      expect(given.map((row) => row.after)).toEqual([able.id, null, second.id]);
    },
  );
});

/** A consumer whose first batch on `holder` stays open until it is let go. */
function gated(name: string): {
  consumer: Consumer;
  /** The worker that is held from now on. */
  hold(workerId: string): void;
  entered: Promise<void>;
  letGo(): void;
} {
  let [holder, enter, letGo] = ["", (): void => {}, (): void => {}];
  const entered = new Promise<void>((resolve) => {
    enter = resolve;
  });
  const gate = new Promise<void>((resolve) => {
    letGo = resolve;
  });
  onCleanup(async () => letGo()); // A test that fails must not wait for the drain.
  const handle: Consumer["handle"] = async (event, context) => {
    await recordHandled(event, context);
    if (context.workerId !== holder) return;
    enter();
    await gate;
  };
  return {
    consumer: consumer(name, { handle }),
    hold: (workerId) => {
      holder = workerId;
    },
    entered,
    letGo: () => letGo(),
  };
}

describe("a worker that stops", () => {
  it("ends its batch in flight before its row goes, and gives up the rest at once", async () => {
    const database = await newDatabase();
    const { pool } = database;
    const mill = await database.connect();
    const slow = gated("slow");
    const names = ["other-1", "other-2", "other-3", "slow"];
    const consumers = [...names.slice(0, 3).map((name) => recording(name)), slow.consumer];
    const workers = [
      await mill.startWorker({ ...CALM, consumers }),
      await mill.startWorker({ ...CALM, consumers }),
    ];
    const owners = await eventuallyOwn(
      pool,
      workers.map((worker) => [worker, 2] as const),
    );
    const leaving = workers.find((worker) => worker.id === owners.get("slow"))!;
    const staying = workers.find((worker) => worker !== leaving)!;
    const other = (await ownedBy(pool, leaving.id)).find((name) => name !== "slow")!;
    slow.hold(leaving.id);
    const appends = steadyAppends(mill, 25);
    await slow.entered;
    const stopping = leaving.stop();
    const released = await eventually(async () => {
      const journal = await readJournal(pool);
      const row = journal.find((one) => one.subject === other && one.before === leaving.id);
      if (row === undefined) throw new Error(`${other} is not released`);
      return row;
    });
    expect(await elsewhereAfterMs(pool, other, leaving.id, released.at)).toBeLessThan(1_000);
    expect(await readWorkerIds(pool)).toContain(leaving.id);
    expect(await ownedBy(pool, leaving.id)).toEqual(["slow"]);
    expect(leaving.assigned).toEqual(["slow"]);
    slow.letGo();
    await stopping;
    expect(await readWorkerIds(pool)).toEqual([staying.id]);
    const positions = await appends.stop();
    await waitForAll(mill, names, positions.at(-1)!);
    await expectOnceInOrder(pool, names, positions);
    const rows = await readHandled(pool, "slow");
    expect(new Set(rows.map((row) => row.worker))).toEqual(new Set([leaving.id, staying.id]));
    const about = (await readJournal(pool)).filter(
      (row) => row.before === leaving.id || row.subject === leaving.id,
    );
    const last = about.findIndex((row) => row.subject === "slow");
    const gone = about.findIndex((row) => row.what === "registration");
    expect(last).toBeGreaterThan(0);
    expect(gone).toBeGreaterThan(last);
  });

  it("is not held up by the long batch of another that stops", async () => {
    const database = await newDatabase();
    const { pool } = database;
    const mill = await database.connect();
    const slow = gated("a-slow");
    const names = ["a-slow", "b", "c"];
    const consumers = [slow.consumer, recording("b"), recording("c")];
    const workers: Worker[] = [];
    for (const _ of names) workers.push(await mill.startWorker({ ...CALM, consumers }));
    const owners = await eventuallyOwn(
      pool,
      workers.map((worker) => [worker, 1] as const),
    );
    await eventually(() => expect(workers.some((worker) => worker.isLeader)).toBe(true));
    const owning = (name: string) => workers.find((worker) => worker.id === owners.get(name))!;
    const [busy, leader] = [owning("a-slow"), workers.find((worker) => worker.isLeader)!];
    const leaving = workers.find((worker) => worker !== busy && worker !== leader)!;
    slow.hold(busy.id);
    const appends = steadyAppends(mill, 25);
    await slow.entered;
    const stopping = busy.stop();
    // The leader has just begun to wait for the row that the long batch holds.
    await eventually(
      async () => {
        const { rows } = await pool.query(
          `SELECT FROM pg_stat_activity
            WHERE datname = current_database() AND wait_event_type = 'Lock'
              AND NOW() - query_start < INTERVAL '100 ms'`,
        );
        expect(rows).not.toEqual([]);
      },
      { everyMs: 5 },
    );
    const [name] = await ownedBy(pool, leaving.id);
    await leaving.stop();
    const journal = await readJournal(pool);
    const release = journal.find((row) => row.subject === name && row.before === leaving.id);
    const afterMs = await elsewhereAfterMs(pool, name!, leaving.id, release!.at);
    expect(afterMs).toBeLessThan(1_000);
    slow.letGo();
    await stopping;
    const positions = await appends.stop();
    await waitForAll(mill, names, positions.at(-1)!);
    await expectOnceInOrder(pool, names, positions);
  });

  it("announces it, then gives up consumers, leadership and registration in turn", async () => {
    const database = await newDatabase();
    const { pool } = database;
    const names = NAMES.slice(0, 3);
    const consumers = names.map((name) => recording(name));
    const mill = await database.connect();
    const leader = await mill.startWorker({ ...CALM, consumers });
    await eventuallyOwn(pool, [[leader, 3]]);
    const appends = steadyAppends(mill, 25);
    await eventually(async () => expect(await readHandled(pool)).not.toEqual([]));
    const before = (await readJournal(pool)).at(-1)?.id ?? 0;
    await leader.stop();
    // The status changes in the statement that deletes the registration, in no order to it.
    const journal = (await readJournal(pool, before)).filter((row) => row.after !== "stopped");
    expect(journal.map((row) => [row.what, row.before, row.after])).toEqual([
      ["status", "active", "draining"],
      ...names.map(() => ["owner", leader.id, null]),
      ["leader", leader.id, null],
      ["registration", "there", null],
    ]);
    expect((await mill.status()).workers).toMatchObject([{ id: leader.id, status: "stopped" }]);
    const successor = await mill.startWorker({ ...CALM, consumers });
    const positions = await appends.stop();
    await waitForAll(mill, names, positions.at(-1)!);
    await expectOnceInOrder(pool, names, positions);
    expect(successor.isLeader).toBe(true);
  });
});

describe("a long batch", () => {
  it("keeps no other busy consumer from a worker that joins", async () => {
    const database = await newDatabase();
    const { pool } = database;
    const mill = await database.connect();
    const slow = gated("c-slow");
    let isBusy = true;
    const busy = consumer("d-busy", {
      handle: async (event, context) => {
        await recordHandled(event, context);
        if (isBusy) await context.tx.query("SELECT pg_sleep(0.1)");
      },
    });
    const names = ["a", "b", "c-slow", "d-busy"];
    const consumers = [recording("a"), recording("b"), slow.consumer, busy];
    // Without a pause the next batch has the row locked again at once.
    const options = { ...CALM, consumers, batchSize: 2, batchPause: 0 };
    const first = await mill.startWorker(options);
    await eventuallyOwn(pool, [[first, 4]]);
    slow.hold(first.id);
    const appends = steadyAppends(mill, 25);
    await slow.entered;
    await eventually(async () => expect(await readHandled(pool, "d-busy")).not.toEqual([]));
    const second = await mill.startWorker(options);
    // The slow batch goes on for batchTimeout, which is longer than this waits.
    await eventually(async () => expect(await ownedBy(pool, second.id)).toEqual(["d-busy"]));
    expect(await ownedBy(pool, first.id)).toContain("c-slow");
    isBusy = false;
    slow.letGo();
    await eventuallyOwn(pool, [
      [first, 2],
      [second, 2],
    ]);
    const positions = await appends.stop();
    await waitForAll(mill, names, positions.at(-1)!);
    await expectOnceInOrder(pool, names, positions);
  });
});
