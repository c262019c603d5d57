import type pg from "pg";
import { expect, it } from "vitest";
import { keepJournal, readJournal, readServerTime } from "../../support/cluster.ts";
import { testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { QUICK, startTaskProcess } from "../../support/task-processes.ts";
import {
  createRuns,
  eventuallyDone,
  orders,
  readFailures,
  readHistory,
  readLive,
  readRuns,
} from "../../support/task-runs.ts";

const ORDERS = orders();

/** As in the source: a heartbeat TTL of several intervals, and a lease of several TTLs. */
const SCALED = { ...QUICK, heartbeatTimeout: 2_000, leaseSeconds: 8 };

/** Whose bucket the key is in. */
async function ownerOf(pool: pg.Pool, key: string): Promise<string | undefined> {
  const { rows } = await pool.query<{ worker_id: string }>(
    "SELECT worker_id FROM tidemill.bucket_owners WHERE tidemill.bucket_of($1) = ANY (buckets)",
    [key],
  );
  return rows.length === 1 ? rows[0]?.worker_id : undefined;
}

async function keyOf(pool: pg.Pool, worker: string | undefined): Promise<string> {
  for (let order = 0; order < 200; order += 1) {
    if ((await ownerOf(pool, `order:${order}`)) === worker) return `order:${order}`;
  }
  throw new Error(`no key belongs to ${worker}`);
}

async function heartbeatOf(pool: pg.Pool, worker: string | undefined): Promise<Date> {
  const { rows } = await pool.query<{ at: Date }>(
    "SELECT heartbeat_at AS at FROM tidemill.worker_nodes WHERE worker_id = $1",
    [worker],
  );
  return rows[0]?.at ?? new Date(0);
}

it("recovers a crashed worker's key step by step: heartbeat, TTL, lease, next owner", async () => {
  const database = await testDatabase();
  await createRuns(database);
  await keepJournal(database);
  const { pool, url } = database;
  const mill = await database.connect();
  await mill.enqueue(ORDERS, { act: "work" });
  const start = (): ReturnType<typeof startTaskProcess> =>
    startTaskProcess({ url, queue: "orders", options: SCALED });
  const first = await start(); // It leads: whoever crashes is not the leader.
  await eventuallyDone(database, 1);
  await eventually(async () => {
    const { rows } = await pool.query("SELECT leader_id FROM tidemill.leader_term");
    expect(rows).toEqual([{ leader_id: first.ids[0] }]);
  });
  const [second, third] = await Promise.all([start(), start()]);
  await eventually(async () => {
    const { rows } = await pool.query<{ count: number }>(
      "SELECT cardinality(buckets) AS count FROM tidemill.bucket_owners",
    );
    expect(rows.map((row) => row.count)).toEqual([120, 120, 120]);
  });
  const [victim] = second.ids;

  // T+0: worker 2 sends heartbeats.
  const earlier = await heartbeatOf(pool, victim);
  await eventually(async () =>
    expect((await heartbeatOf(pool, victim)).getTime()).toBeGreaterThan(earlier.getTime()),
  );

  // T+5: it claims the tasks of its own buckets only.
  const key = await keyOf(pool, victim);
  const payloads = [1, 2].map((n) => ({ n, act: n === 1 ? "wait" : "work" }) as const);
  const tasks = payloads.map((payload) => ({ payload, partitionKey: key }));
  const [head, next] = await mill.enqueueMany(ORDERS, tasks);
  expect(await second.heard("waiting")).toMatchObject({ task: head?.id, generation: 1 });

  // T+12: it crashes. Others continue; its claimed tasks sit until their lease ends.
  const lastBeat = await heartbeatOf(pool, victim);
  const crashedAt = await readServerTime(pool);
  second.kill("SIGKILL");
  await second.ended;
  const { rows: leases } = await pool.query<{ at: Date }>(
    "SELECT lease_until AS at FROM tidemill.tasks WHERE id = $1",
    [head?.id],
  );
  const leaseUntil = leases[0]?.at ?? new Date(0);
  expect(leaseUntil.getTime()).toBeGreaterThan(crashedAt.getTime());
  const other = await mill.enqueue(
    ORDERS,
    { act: "work" },
    { partitionKey: await keyOf(pool, third.ids[0]) },
  );
  await eventually(async () =>
    expect(await readHistory(pool, other.id)).toMatchObject([{ worker: third.ids[0] }]),
  );

  // T+42: its TTL is exceeded and it is marked dead; its buckets have other owners.
  const dead = await eventually(async () => {
    const journal = await readJournal(pool);
    const row = journal.find((one) => one.subject === victim && one.after === "dead");
    if (row === undefined) throw new Error("nobody has marked it dead");
    return row;
  });
  const newOwner = await eventually(async () => {
    const owner = await ownerOf(pool, key);
    expect([first.ids[0], third.ids[0]]).toContain(owner);
    return owner;
  });
  expect(await readLive(pool)).toMatchObject([
    { id: head?.id, state: "running", worker: victim, generation: 1 },
    { id: next?.id },
  ]);
  expect((await readRuns(pool)).filter((run) => run.key === key)).toHaveLength(1);

  // T+43: the lease ends, the claim is taken back, and the next on the ring runs the task.
  first.openGate();
  third.openGate();
  await eventuallyDone(database, 4);
  const [lost] = await readFailures(pool, head?.id);
  const runs = (await readRuns(pool)).filter((run) => run.key === key);
  expect(runs.map((run) => [run.n, run.worker, run.attempt])).toEqual([
    [1, victim, 1],
    [1, newOwner, 2],
    [2, newOwner, expect.any(Number)],
  ]);
  const times = [lastBeat, crashedAt, dead.at, lost?.at, runs[1]?.started, runs[2]?.started];
  const ms = times.map((time) => time?.getTime() ?? Number.NaN);
  expect(ms).toEqual([...ms].sort((a, b) => a - b));
  expect(dead.at.getTime() - lastBeat.getTime()).toBeGreaterThanOrEqual(SCALED.heartbeatTimeout);
  expect(lost?.at.getTime()).toBeGreaterThanOrEqual(leaseUntil.getTime());
  expect((await readHistory(pool, head?.id)).map((one) => one.worker)).toEqual([newOwner]);
});
