import type pg from "pg";
import { describe, expect, it } from "vitest";
import { listConsumers } from "../../../src/consumers/sql/admin.ts";
import type { Queryable } from "../../../src/db/database.ts";
import { resolveNames } from "../../../src/db/names.ts";
import { shapePlans } from "../../../src/db/sql/session.ts";
import { renderStatement, type Statement } from "../../../src/db/statement.ts";
import { queue } from "../../../src/index.ts";
import { bucketSet } from "../../../src/tasks/sql/bucket-owners.ts";
import { claimTasks, lookAtLanes, undoClaim } from "../../../src/tasks/sql/claim.ts";
import {
  buryTasks,
  completeTasks,
  endTasks,
  findCompleted,
  findLocked,
  putBackTasks,
} from "../../../src/tasks/sql/finish.ts";
import { advanceHolds } from "../../../src/tasks/sql/holds.ts";
import {
  promoteTasks,
  secondsToClaim,
  secondsToScheduled,
} from "../../../src/tasks/sql/housekeeping.ts";
import { findTasks } from "../../../src/tasks/sql/inspect.ts";
import { lookAtKeyLanes } from "../../../src/tasks/sql/key-lanes.ts";
import {
  claimKeyedPacks,
  probeKeySpace,
  probeKeySpaces,
} from "../../../src/tasks/sql/key-packs.ts";
import { claimHeldHeads, claimKeyedTasks, findForeignLanes } from "../../../src/tasks/sql/keys.ts";
import {
  extendLease,
  findCancelled,
  renewLeases,
  saveProgress,
} from "../../../src/tasks/sql/lease.ts";
import {
  openClaimedPacks,
  openKeyedPacks,
  openLostPacks,
  openPackOf,
  openPacksOfClaim,
  openWaitingPacks,
} from "../../../src/tasks/sql/open-packs.ts";
import { claimPacks, completePacks } from "../../../src/tasks/sql/packs.ts";
import { readQueueCounts } from "../../../src/tasks/sql/queue-admin.ts";
import { forgetClaims, lockLostTasks, putOnProbation } from "../../../src/tasks/sql/reap.ts";
import { readWhy } from "../../../src/tasks/sql/why.ts";
import { type TestDatabase, testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { flushStatistics } from "../../support/statistics.ts";
import { range, readColumn } from "./scene.ts";

const NAMES = resolveNames();
const WORKER = "00000000-0000-4000-8000-000000000001";
const CLAIM = "00000000-0000-4000-8000-0000000000aa";
const TOKEN = { taskId: "1", generation: 1, claimId: CLAIM };
const PACK = { id: "1", claimId: CLAIM };
const SETBACK = { id: "1", generation: 1, claim_id: CLAIM, reason: "no" };
const FACTS = { claimId: CLAIM, workerId: WORKER, leaseSeconds: 30, proofs: [] };
const ALONE = { ...FACTS, isBesideOthers: false };
const BESIDE = { ...FACTS, isBesideOthers: true };
const WAITING = { keySpaceId: 0, floor: 0, buckets: bucketSet([0, 1, 2]) };
const OWNED = { keySpaceId: 0, baseId: 0, epoch: "1", marker: CLAIM };
const KEYED = { ...FACTS, ...OWNED, packs: WAITING, exceptKeys: [] };
const HELD = [{ tenant: "default", key: "held" }];
const LANES = [-1, -2, -3].map((lane) => ({ lane, floor: 0, start: 0, held: HELD, take: 10 }));
const HEADS = { all: 1, probation: 1, exceptQueues: [], exceptKeys: [] };
const DEAD_MAX = 500;
const PER_KEY = { otherwise: 1, keys: [{ tenant: "a", key: "b", allowed: 1 }], queues: [] };

interface Sent {
  readonly statement: Statement;
  readonly values: readonly unknown[];
}

/** Keeps what is sent, and answers with nothing. */
class Recorder implements Queryable {
  readonly sent: Sent[] = [];

  async query<Row>(statement: Statement, values: readonly unknown[] = []): Promise<Row[]> {
    this.sent.push({ statement, values });
    return [];
  }
}

async function record(send: (db: Recorder) => Promise<unknown>): Promise<Sent> {
  const recorder = new Recorder();
  await send(recorder);
  const [sent] = recorder.sent;
  if (sent === undefined || recorder.sent.length !== 1) throw new Error("not one statement");
  return sent;
}

type Case = readonly [string, (db: Recorder) => Promise<unknown>];

/** Sent on the worker's own connection, whose plans are shaped. */
const ON_SESSION: readonly Case[] = [
  ["claim", (db) => claimTasks(db, ALONE, [{ lane: 2, floor: 0, take: 10 }])],
  ["claim beside others", (db) => claimTasks(db, BESIDE, [{ lane: 2, floor: 0, take: 10 }])],
  ["look", (db) => lookAtLanes(db, ["orders"], new Map([[2, 0]]))],
  ["undo", (db) => undoClaim(db, CLAIM)],
  [
    "complete",
    (db) => completeTasks(db, [{ id: "1", generation: 1, claimId: CLAIM, result: "" }], []),
  ],
  [
    "find completed",
    (db) => findCompleted(db, [{ id: "1", generation: 1, claimId: CLAIM, result: "" }]),
  ],
  ["find locked", (db) => findLocked(db, [{ id: "1" }])],
  [
    "put back",
    (db) => putBackTasks(db, [{ ...SETBACK, outcome: "failed", delay: 1, refund: false }]),
  ],
  ["end", (db) => endTasks(db, [{ ...SETBACK, outcome: "failed", state: "failed" }])],
  [
    "bury",
    (db) =>
      buryTasks(db, [{ ...SETBACK, outcome: "failed", cause: "attempts_exhausted", park: false }]),
  ],
  ["claim of keys", (db) => claimKeyedTasks(db, KEYED, LANES)],
  ["limited claim of keys", (db) => claimKeyedTasks(db, { ...KEYED, perKey: PER_KEY }, LANES)],
  ["claim of heads", (db) => claimHeldHeads(db, KEYED, [-1, -2], HEADS)],
  ["advance of holds", (db) => advanceHolds(db, 0, [-1, -2])],
  [
    "look at keys",
    (db) => lookAtKeyLanes(db, { packs: WAITING, exceptKeys: ["a"], heldMax: 10 }, LANES),
  ],
  ["probe of keys", (db) => probeKeySpace(db, WAITING)],
  ["probe of keys of many", (db) => probeKeySpaces(db, [WAITING, { ...WAITING, keySpaceId: 1 }])],
  [
    "claim of packs of keys",
    (db) =>
      claimKeyedPacks(db, {
        ...FACTS,
        ...OWNED,
        ...WAITING,
        owned: WAITING.buckets,
        lanes: "{-1,-2,-3}",
        take: 10,
      }),
  ],
  [
    "claim of packs of keys of a limited queue",
    (db) =>
      claimKeyedPacks(db, {
        ...FACTS,
        ...OWNED,
        ...WAITING,
        owned: WAITING.buckets,
        lanes: "{-1,-2,-3}",
        take: 10,
        proofs: [{ queue: "orders", slots: 0, deadline: null }],
      }),
  ],
  ["open packs of keys", (db) => openKeyedPacks(db, WAITING, 1)],
  ["foreign lanes", (db) => findForeignLanes(db, [-1, -2], [])],
  ["claim of packs", (db) => claimPacks(db, FACTS, [{ lane: 2, floor: 0, take: 10 }])],
  [
    "claim of packs of a limited queue",
    (db) => {
      const proofs = [{ queue: "orders", slots: 0, deadline: null }];
      return claimPacks(db, { ...FACTS, proofs }, [{ lane: 2, floor: 0, take: 10 }]);
    },
  ],
  ["complete packs", (db) => completePacks(db, [{ ...PACK, results: [] }], [])],
  ["open packs", (db) => openClaimedPacks(db, [PACK])],
  ["open waiting packs", (db) => openWaitingPacks(db, { lane: 2, floor: 0, take: 1 })],
  ["open lost packs", (db) => openLostPacks(db, [CLAIM])], // Its transaction is shaped.
  ["open packs of a claim", (db) => openPacksOfClaim(db, CLAIM)],
];

/** Sent on a pooled connection, which nobody has shaped. */
const ON_POOL: readonly Case[] = [
  ["renew", (db) => renewLeases(db, [TOKEN], 30)],
  ["find cancelled", (db) => findCancelled(db, [TOKEN])],
  ["extend", (db) => extendLease(db, TOKEN, 30)],
  ["progress", (db) => saveProgress(db, TOKEN, "1")],
  ["open the pack of a task", (db) => openPackOf(db, "1")],
  ["find a task", (db) => findTasks(db, ["1"], {})],
  ["why", (db) => readWhy(db, "1")],
  ["lost", (db) => lockLostTasks(db, [CLAIM])],
  ["probation", (db) => putOnProbation(db, ["1"])],
  ["forget", (db) => forgetClaims(db, [CLAIM])],
  ["next claim", (db) => secondsToClaim(db)],
  ["next scheduled", (db) => secondsToScheduled(db)],
  ["promote", (db) => promoteTasks(db, 1_000)],
];

interface PlanNode {
  readonly "Node Type": string;
  readonly "Relation Name"?: string;
  readonly "Index Name"?: string;
  readonly "Index Cond"?: string;
  readonly Filter?: string;
  readonly Plans?: readonly PlanNode[];
}

const flat = (node: PlanNode): PlanNode[] => [node, ...(node.Plans ?? []).flatMap(flat)];

function literal(value: unknown): string {
  if (value === null || value === undefined) return "NULL";
  const text = Array.isArray(value)
    ? `{${value.map((one) => JSON.stringify(one)).join(",")}}`
    : typeof value === "string"
      ? value
      : JSON.stringify(value);
  return `'${text.replaceAll("'", "''")}'`;
}

/** The plan that a prepared statement keeps, whatever values come later. */
async function planOf(session: pg.Client, { statement, values }: Sent): Promise<PlanNode[]> {
  await session.query("SET plan_cache_mode = force_generic_plan");
  await session.query(`PREPARE one AS ${renderStatement(statement, NAMES)}`);
  const given = values.length === 0 ? "" : `(${values.map(literal).join(",")})`;
  const { rows } = await session.query<{ "QUERY PLAN": readonly { Plan: PlanNode }[] }>(
    `EXPLAIN (FORMAT JSON) EXECUTE one${given}`,
  );
  await session.query("DEALLOCATE one");
  const [plan] = rows[0]?.["QUERY PLAN"] ?? [];
  if (plan === undefined) throw new Error("no plan");
  return flat(plan.Plan);
}

async function shaped(database: TestDatabase): Promise<pg.Client> {
  const session = await database.session();
  await shapePlans({
    query: async (statement, values = []) =>
      (await session.query(renderStatement(statement, NAMES), [...values])).rows,
  });
  return session;
}

/** Pending tasks in lanes of three kinds, of which the planner knows nothing. */
async function fill(database: TestDatabase, count: number): Promise<void> {
  const mill = await database.connect();
  const orders = queue("orders");
  await mill.enqueue(orders, 1);
  await mill.enqueue(orders, 1, { delaySeconds: 600 });
  await mill.enqueue(orders, 1, { partitionKey: "key" });
  for (const table of ["tasks", "task_packs"]) {
    await database.pool.query(`ALTER TABLE tidemill.${table} SET (autovacuum_enabled = false)`);
  }
  await database.pool.query(
    `INSERT INTO tidemill.task_packs (id, last_id, lane, max_attempts, priority, tenant, queue,
                                      ids, payloads)
     SELECT number, number, lane, 5, 5, 'default', 'orders', ARRAY[number], '1'
       FROM (SELECT nextval('tidemill.task_numbers') AS number,
                    (SELECT lane FROM tidemill.task_lanes WHERE priority = 5) AS lane
               FROM generate_series(1, $1::int / 10)) AS new`,
    [count],
  );
  await database.pool.query(
    `INSERT INTO tidemill.tasks (id, claim_order, run_at, lane, max_attempts, priority, state,
                                 tenant, queue, partition_key, partition_bucket, payload)
     SELECT number, CASE WHEN n % 10 > 0 THEN number END, run_at,
            CASE WHEN n % 2 = 0 THEN lane ELSE -1 - n % 360 END, 5, 5,
            CASE WHEN n % 10 > 0 THEN 'pending' ELSE 'scheduled' END, 'default', 'orders',
            CASE WHEN n % 2 = 1 THEN 'key:' || n END, CASE WHEN n % 2 = 1 THEN n % 360 END, '1'
       FROM (SELECT n, nextval('tidemill.task_numbers') AS number, NOW() AS run_at,
                    (SELECT lane FROM tidemill.task_lanes WHERE priority = 5) AS lane
               FROM generate_series(1, $1::int) AS n) AS new`,
    [count],
  );
}

interface Finding {
  readonly what: string;
  readonly wrong: readonly string[];
}

/** What a plan must not do to the tables of tasks: read all of one, or all its lanes for one. */
function faultsOf(plan: readonly PlanNode[]): string[] {
  const isTasks = ({ "Relation Name": name = "" }: PlanNode): boolean =>
    name === "tasks" || name === "task_packs";
  const isWalk = ({ "Node Type": type, "Index Cond": cond, Filter: filter }: PlanNode): boolean =>
    type === "Seq Scan" || (/\blane\b/.test(filter ?? "") && !/\bid = /.test(cond ?? ""));
  return plan
    .filter((node) => isTasks(node) && isWalk(node))
    .map((node) => `${node["Node Type"]} on ${node["Relation Name"]} ${node["Index Name"] ?? ""}`);
}

async function findFaults(session: pg.Client, cases: readonly Case[]): Promise<Finding[]> {
  const findings: Finding[] = [];
  for (const [what, send] of cases) {
    const wrong = faultsOf(await planOf(session, await record(send)));
    if (wrong.length > 0) findings.push({ what, wrong });
  }
  return findings;
}

describe.each([
  ["a few tasks that were never analysed", 200, false],
  ["50,000 tasks that were never analysed", 50_000, false],
  ["50,000 tasks that were analysed", 50_000, true],
] as const)("with %s", (_what, count, isAnalysed) => {
  it("every statement finds its tasks by index", async () => {
    const database = await testDatabase();
    await fill(database, count);
    if (isAnalysed) await database.pool.query("ANALYZE tidemill.tasks, tidemill.task_packs");
    expect(await findFaults(await shaped(database), ON_SESSION)).toEqual([]);
    // Reading all of a table that is nearly empty costs less than any index.
    if (count > 1_000) {
      expect(await findFaults(await database.session(), ON_POOL)).toEqual([]);
    }
  });

  it("a claim walks its lane in order, sorts nothing and writes each row directly", async () => {
    const database = await testDatabase();
    await fill(database, count);
    if (isAnalysed) await database.pool.query("ANALYZE tidemill.tasks, tidemill.task_packs");
    const session = await shaped(database);
    const claims = ON_SESSION.filter(([what]) => what === "claim" || what === "claim of keys");
    for (const [what, send] of claims) {
      const plan = await planOf(session, await record(send));
      const indexes = plan.flatMap((node) => node["Index Name"] ?? []);
      expect([what, indexes.includes("tasks_lane_idx")]).toEqual([what, true]);
      const isDirect =
        indexes.includes("tasks_pkey") || plan.some((node) => node["Node Type"] === "Tid Scan");
      expect([what, isDirect]).toEqual([what, true]);
      const sorts = plan.filter(
        (node) =>
          node["Node Type"].includes("Sort") &&
          flat(node).some((one) => one["Relation Name"] === "tasks"),
      );
      expect([what, sorts]).toEqual([what, []]);
    }
  });
});

describe("a claim", () => {
  it("is a HOT update of every row", async () => {
    const database = await testDatabase();
    await fill(database, 50_000);
    const session = await shaped(database);
    const [lane] = await readColumn<number>(
      database,
      "SELECT lane FROM tidemill.task_lanes WHERE priority = 5",
    );
    const updates = async (): Promise<{ all: number; hot: number }> => {
      const { rows } = await session.query<{ all: number; hot: number }>(
        `SELECT n_tup_upd::int AS "all", n_tup_hot_upd::int AS hot
           FROM pg_stat_all_tables WHERE relid = 'tidemill.tasks'::regclass`,
      );
      return rows[0] ?? { all: 0, hot: 0 };
    };
    const before = await updates();
    for (const n of range(20)) {
      const claimId = `00000000-0000-4000-8000-${String(n).padStart(12, "0")}`;
      const lanes = [{ lane: lane ?? 0, floor: 0, take: 100 }];
      const { statement, values } = await record((db) =>
        claimTasks(db, { ...ALONE, claimId }, lanes),
      );
      const claimed = await session.query(renderStatement(statement, NAMES), [...values]);
      expect(claimed.rows[0]?.rows.split("\u001e")).toHaveLength(100);
    }
    await flushStatistics(database.pool, (text) => session.query(text));
    await eventually(async () => {
      const after = await updates();
      expect(after.all - before.all).toBe(2_000);
      expect(after.hot - before.hot).toBe(2_000);
    });
  });
});

describe.each([
  ["never analysed", false],
  ["analysed", true],
] as const)("200,000 pending and 10,000 running tasks that were %s", (_what, isAnalysed) => {
  it("are reaped by reading those that run", async () => {
    const database = await testDatabase();
    await fill(database, 210_000);
    const claims = await readColumn<string>(
      database,
      `WITH run AS (
         SELECT id, md5((row_number() OVER (ORDER BY id) / 1000)::text)::uuid AS claim_id
           FROM tidemill.tasks WHERE lane > 0 AND state = 'pending' ORDER BY id LIMIT 10000
       ), taken AS (
         UPDATE tidemill.tasks AS task
            SET state = 'running', claim_id = run.claim_id, leased_by = '${WORKER}',
                lease_until = NOW() - INTERVAL '1 second', lease_generation = 1
           FROM run WHERE task.id = run.id
       )
       INSERT INTO tidemill.task_claims (claim_id, worker_id, check_at, task_ids)
       SELECT claim_id, '${WORKER}', NOW(), array_agg(id) FROM run GROUP BY claim_id
       RETURNING claim_id`,
    );
    if (isAnalysed) await database.pool.query("ANALYZE");
    const session = await database.session();
    for (const send of [lockLostTasks, forgetClaims]) {
      const read = await rowsRead(session, await record((db) => send(db, claims)));
      expect(Math.max(...read)).toBe(10_000);
    }
  });
});

describe.each([
  ["never analysed", false],
  ["analysed", true],
] as const)("210,000 tasks that were %s", (_what, isAnalysed) => {
  it("are counted by reading the first of each lane", async () => {
    const database = await testDatabase();
    await fill(database, 210_000);
    await bury(database, 20_000);
    if (isAnalysed) await database.pool.query("ANALYZE");
    const session = await database.session();
    const counts = await record((db) => readQueueCounts(db, DEAD_MAX));
    const read = await rowsRead(session, counts);
    expect(Math.max(...read)).toBeGreaterThan(1_000); // Of 180 buckets, ten each.
    expect(Math.max(...read)).toBeLessThan(2_000);
    // Of the queue that has most of them, and of the one that has a few.
    const dead = await rowsRead(session, counts, /^dead_letters$/);
    expect(dead).toEqual([DEAD_MAX + 10]);
  });
});

describe.each([
  ["never analysed", false],
  ["analysed", true],
] as const)("25,000 parked events that were %s", (_what, isAnalysed) => {
  it("are counted up to a bound", async () => {
    const database = await testDatabase();
    const mill = await database.connect();
    const names = ["books", "letters", "mails"];
    for (const name of names) {
      await database.pool.query(
        "INSERT INTO tidemill.consumer_checkpoints (consumer_name) VALUES ($1)",
        [name],
      );
    }
    await database.pool.query(
      `WITH streams AS (
         INSERT INTO tidemill.parked_streams (consumer_name, stream_type, stream_id, state, error)
         SELECT CASE WHEN n <= 6 THEN 'letters' ELSE 'books' END, 's', n::text, 'parked', 'no'
           FROM generate_series(1, 12500) AS n)
       INSERT INTO tidemill.parked_events (consumer_name, global_position, stream_type, stream_id)
       SELECT CASE WHEN n <= 12 THEN 'letters' ELSE 'books' END, n, 's', ((n + 1) / 2)::text
         FROM generate_series(1, 25000) AS n`,
    );
    if (isAnalysed) await database.pool.query("ANALYZE");
    expect(await mill.listConsumers()).toMatchObject([
      { name: "books", parkedStreams: 10_000, parkedEvents: 10_000, isParkedCut: true },
      { name: "letters", parkedStreams: 6, parkedEvents: 12, isParkedCut: false },
      { name: "mails", parkedStreams: 0, parkedEvents: 0, isParkedCut: false },
    ]);
    const list = await record(listConsumers);
    const read = await rowsRead(await database.session(), list, /^parked_/);
    // A mean of three loops, rounded.
    expect(read.map((rows) => Math.abs(rows - 10_009) < 10)).toEqual([true, true]);
  });
});

/** Dead letters of one queue, ten of another, and none of a third. */
async function bury(database: TestDatabase, count: number): Promise<void> {
  const mill = await database.connect();
  for (const name of ["mails", "letters"]) await mill.queues.ensure(name);
  await database.pool.query(
    `INSERT INTO tidemill.dead_letters (id, created_at, run_at, claim_order, lease_generation, lane,
                                        attempt, max_attempts, losses, priority, tenant, queue,
                                        payload, cause, reason)
     SELECT -n, NOW(), NOW(), n, 1, 1, 5, 5, 0, 5, 'default',
            CASE WHEN n <= 10 THEN 'mails' ELSE 'orders' END, '1', 'attempts_exhausted', 'no'
       FROM generate_series(1, $1::int) AS n`,
    [count],
  );
}

interface RanNode extends PlanNode {
  readonly "Actual Rows": number;
  readonly "Actual Loops": number;
  readonly "Rows Removed by Filter"?: number;
}

/** How many rows of the tables of tasks each part of a plan looked at. */
async function rowsRead(
  session: pg.Client,
  { statement, values }: Sent,
  tables = /^(tasks|task_packs)$/,
): Promise<number[]> {
  await session.query("SET plan_cache_mode = force_generic_plan");
  await session.query(`PREPARE one AS ${renderStatement(statement, NAMES)}`);
  const given = values.length === 0 ? "" : `(${values.map(literal).join(",")})`;
  const { rows } = await session.query<{ "QUERY PLAN": readonly { Plan: RanNode }[] }>(
    `EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE one${given}`,
  );
  await session.query("DEALLOCATE one");
  const plan = (rows[0]?.["QUERY PLAN"] ?? []).flatMap(({ Plan }) => flat(Plan) as RanNode[]);
  return plan
    .filter((node) => tables.test(node["Relation Name"] ?? ""))
    .map(
      (node) =>
        (node["Actual Rows"] + (node["Rows Removed by Filter"] ?? 0)) * node["Actual Loops"],
    );
}
