import { randomUUID } from "node:crypto";
import { expect, it } from "vitest";
import { type Clock, systemClock } from "../../../src/base/clock.ts";
import { silentLogger } from "../../../src/base/log.ts";
import { beginTerm, holdTerm } from "../../../src/cluster/sql/leader.ts";
import { type Connection, Database } from "../../../src/db/database.ts";
import { resolveNames } from "../../../src/db/names.ts";
import { moveBuckets } from "../../../src/tasks/bucket-moves.ts";
import { Housekeeper } from "../../../src/tasks/housekeeper.ts";
import { TaskMetrics } from "../../../src/tasks/metrics.ts";
import { bucketSet } from "../../../src/tasks/sql/bucket-owners.ts";
import { claimKeyedTasks, readOwnedBuckets } from "../../../src/tasks/sql/keys.ts";
import { keyLane } from "../../../src/tasks/task.ts";
import { onCleanup, type TestDatabase, testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { orders, readFailures, readLive, startLeader } from "../../support/task-runs.ts";

const ORDERS = orders();

interface Scene {
  readonly database: TestDatabase;
  readonly db: Database;
  readonly connection: Connection;
  /** Two members that can own the queue's buckets; either may lead. */
  readonly members: readonly [string, string];
}

async function newScene(): Promise<Scene> {
  const database = await testDatabase();
  const db = new Database({
    url: database.url,
    names: resolveNames(),
    logger: silentLogger,
    poolSize: 2,
    applicationName: "stale-leader",
    preparedStatements: false,
    queryTimeoutMs: 30_000,
    connectTimeoutMs: 10_000,
  });
  onCleanup(() => db.close());
  const connection = await db.connect("hands");
  onCleanup(() => connection.close());
  const members = [randomUUID(), randomUUID()] as const;
  await addMembers(database, members);
  return { database, db, connection, members };
}

async function addMembers({ pool }: TestDatabase, ids: readonly string[]): Promise<void> {
  await pool.query("INSERT INTO tidemill.worker_nodes SELECT unnest($1::uuid[])", [ids]);
  await pool.query(
    `INSERT INTO tidemill.worker_info
            (worker_id, status, host, pid, version, capabilities, queues)
     SELECT unnest($1::uuid[]), 'active', 'here', 1, '0', '{}', '{orders}'`,
    [ids],
  );
}

async function enqueueOne(database: TestDatabase, delaySeconds?: number): Promise<string> {
  const mill = await database.connect();
  const options = delaySeconds === undefined ? {} : { delaySeconds };
  return (await mill.enqueue(ORDERS, { act: "work" }, options)).id;
}

const move = ({ db }: Scene, term: bigint, leaderId: string): Promise<void> =>
  moveBuckets(
    db,
    { term, leaderId },
    { heartbeatTimeoutMs: 60_000, changesChannel: "changes", logger: silentLogger },
  );

async function readBuckets({ pool }: TestDatabase): Promise<Record<string, number>> {
  const { rows } = await pool.query<{ worker_id: string; count: number }>(
    "SELECT worker_id, cardinality(buckets) AS count FROM tidemill.bucket_owners",
  );
  return Object.fromEntries(rows.map((row) => [row.worker_id, row.count]));
}

/** Lets a leader who believes in this term keep house until it rests, as if nobody had told it. */
async function keepHouse({ db }: Scene, term: bigint, leaderId: string): Promise<void> {
  const stop = new AbortController();
  const clock: Clock = {
    ...systemClock,
    after: (ms, wake) => {
      queueMicrotask(() => stop.abort());
      return systemClock.after(ms, wake);
    },
  };
  const options = { workerId: leaderId, term: () => term, channel: "tasks", onWork: () => {} };
  const timing = { clock, turnMs: 1_000, leaseMs: 1_000, heartbeatTimeoutMs: 1_000 };
  const more = { ...timing, logger: silentLogger, metrics: new TaskMetrics() };
  await new Housekeeper(db, { ...options, ...more }).run(stop.signal);
}

const LOSE = `
  WITH lost AS (
    UPDATE tidemill.tasks
       SET state = 'running', attempt = 1, lease_generation = 1, claim_id = gen_random_uuid(),
           leased_by = gen_random_uuid(), claimed_at = NOW(), lease_until = NOW()
     WHERE id = $1
    RETURNING id, claim_id, leased_by, lease_until
  )
  INSERT INTO tidemill.task_claims (claim_id, worker_id, check_at, task_ids)
  SELECT claim_id, leased_by, lease_until, ARRAY[id] FROM lost`;

/** A task whose lease has ended, held by somebody who is gone. */
async function loseTask({ database }: Scene): Promise<string> {
  const id = await enqueueOne(database);
  await database.pool.query(LOSE, [id]);
  return id;
}

it("moves no bucket in a term that another leader has ended", async () => {
  const scene = await newScene();
  const { database, connection, members } = scene;
  const [old, next] = members;
  await enqueueOne(database);
  const oldTerm = await beginTerm(connection, old);
  const newTerm = await beginTerm(connection, next);
  await move(scene, oldTerm, old);
  expect(await readBuckets(database)).toEqual({});
  await move(scene, newTerm, next);
  expect(await readBuckets(database)).toEqual({ [old]: 180, [next]: 180 });
  // Now it would take buckets from members that live.
  await addMembers(database, [randomUUID()]);
  await move(scene, oldTerm, old);
  await move(scene, newTerm, old); // The right number under the wrong name is no term either.
  expect(await readBuckets(database)).toEqual({ [old]: 180, [next]: 180 });
  await move(scene, newTerm, next);
  expect(Object.values(await readBuckets(database))).toEqual([120, 120, 120]);
});

it("rejects a move that was under way while the next leader began its term", async () => {
  const scene = await newScene();
  const { database, connection, members } = scene;
  const [old, next] = members;
  await enqueueOne(database);
  const oldTerm = await beginTerm(connection, old);
  await connection.client.query("BEGIN");
  await beginTerm(connection, next);
  const late = move(scene, oldTerm, old);
  await eventually(async () => {
    const { rows } = await database.pool.query(
      `SELECT FROM pg_stat_activity
        WHERE application_name = 'stale-leader' AND wait_event_type = 'Lock'
          AND datname = current_database()`,
    );
    expect(rows).toHaveLength(1);
  });
  await connection.client.query("COMMIT");
  await late;
  expect(await readBuckets(database)).toEqual({});
});

it("lets nobody claim under an epoch that a move has ended", async () => {
  const scene = await newScene();
  const { database, connection, members } = scene;
  const [first] = members;
  const mill = await database.connect();
  const keyed = Array.from({ length: 360 }, (_, key) => ({
    payload: { act: "work" } as const,
    kind: key % 2 === 0 ? "even" : "odd", // If all were alike, they would wait in packs.
    partitionKey: `order:${key}`,
  }));
  await mill.enqueueMany(ORDERS, keyed);
  const term = await beginTerm(connection, first);
  await move(scene, term, first);
  const own = async () =>
    (await readOwnedBuckets(connection, first)).find((one) => one.buckets.length > 0);
  const before = await own();
  await addMembers(database, [randomUUID()]);
  await move(scene, term, first);
  const after = await own();
  if (before === undefined || after === undefined) throw new Error("it owns nothing");
  expect(after.epoch).not.toBe(before.epoch);
  const claim = async (epoch: string): Promise<number> => {
    const { keySpaceId, baseId } = after;
    const request = { claimId: randomUUID(), workerId: first, leaseSeconds: 60 };
    const lanes = after.buckets.map((bucket) => keyLane(keySpaceId, bucket));
    const packs = { floor: 0, buckets: bucketSet(after.buckets) };
    const more = { keySpaceId, baseId, epoch, marker: null, packs, exceptKeys: [], proofs: [] };
    const wanted = lanes.map((lane) => ({ lane, floor: 0, start: 0, held: [], take: 1 }));
    const { rows } = await claimKeyedTasks(connection, { ...request, ...more }, wanted);
    return rows.length;
  };
  expect(await claim(before.epoch)).toBe(0);
  expect(await claim(after.epoch)).toBeGreaterThan(0);
});

it("promotes nothing in a term that another leader has ended", async () => {
  const scene = await newScene();
  const { database, connection, members } = scene;
  const [old, next] = members;
  const id = await enqueueOne(database, 0.001);
  await eventually(async () => {
    const { rows } = await database.pool.query(
      "SELECT FROM tidemill.tasks WHERE state = 'scheduled' AND run_at <= clock_timestamp()",
    );
    expect(rows).toHaveLength(1);
  });
  const oldTerm = await beginTerm(connection, old);
  const newTerm = await beginTerm(connection, next);
  await keepHouse(scene, oldTerm, old);
  expect(await readLive(database.pool)).toMatchObject([{ id, state: "scheduled" }]);
  await keepHouse(scene, newTerm, next);
  expect(await readLive(database.pool)).toMatchObject([{ id, state: "pending" }]);
});

it("takes no task from a lost worker in a term that another leader has ended", async () => {
  const scene = await newScene();
  const { database, connection, members } = scene;
  const [old, next] = members;
  const id = await loseTask(scene);
  const oldTerm = await beginTerm(connection, old);
  const newTerm = await beginTerm(connection, next);
  await keepHouse(scene, oldTerm, old);
  expect(await readLive(database.pool)).toMatchObject([{ id, state: "running", generation: 1 }]);
  expect(await readFailures(database.pool)).toEqual([]);
  await keepHouse(scene, newTerm, next);
  expect(await readLive(database.pool)).toMatchObject([{ id, state: "pending", claimId: null }]);
  expect(await readFailures(database.pool, id)).toMatchObject([{ outcome: "lost" }]);
});

it("leads on in a new term when its term was taken away under its feet", async () => {
  const database = await testDatabase();
  const leader = await startLeader(database);
  const { rows: before } = await database.pool.query<{ term: string }>(
    "UPDATE tidemill.leader_term SET term = term + 1, leader_id = $1 RETURNING term",
    [randomUUID()],
  );
  await eventually(async () => {
    const { rows } = await database.pool.query<{ term: string; leader_id: string }>(
      "SELECT term, leader_id FROM tidemill.leader_term",
    );
    expect(rows[0]?.leader_id).toBe(leader.id);
    expect(BigInt(rows[0]?.term ?? 0)).toBeGreaterThan(BigInt(before[0]?.term ?? 0));
  });
  const id = await enqueueOne(database, 0.2);
  await eventually(async () => {
    expect(await readLive(database.pool)).toMatchObject([{ id, state: "pending" }]);
  });
});

it("keeps nobody from the lead for long when it falls silent while it writes", async () => {
  const { db, connection, members } = await newScene();
  const [stale, next] = members;
  const term = await beginTerm(connection, stale);
  // It is paused or cut off here: the server hears nothing more of it.
  const silent = await db.connect("silent");
  onCleanup(() => silent.close());
  await silent.client.query("BEGIN");
  expect(await holdTerm(silent, term, stale)).toBe(true);
  const startedAtMs = performance.now();
  expect(await beginTerm(connection, next)).toBe(term + 1n);
  // Any other transaction of ours may rest for ten.
  expect(performance.now() - startedAtMs).toBeLessThan(8_000);
});
