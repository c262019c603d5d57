import { randomUUID } from "node:crypto";
import type pg from "pg";
import { silentLogger } from "../../src/base/log.ts";
import type { Connection, Database } from "../../src/db/database.ts";
import { Notifier } from "../../src/db/notifier.ts";
import { queue } from "../../src/index.ts";
import { QueueDirectory } from "../../src/tasks/directory.ts";
import type { EnqueueContext } from "../../src/tasks/enqueue.ts";
import { bucketSet } from "../../src/tasks/sql/bucket-owners.ts";
import { type ClaimedRows, claimTasks, FIELD, type GrantProof } from "../../src/tasks/sql/claim.ts";
import { claimKeyedTasks } from "../../src/tasks/sql/keys.ts";
import type { LeaseToken } from "../../src/tasks/task.ts";
import { onCleanup, type TestDatabase, testDatabase } from "../support/database.ts";
import { engineDatabase } from "../support/engine-database.ts";
import { Interleaver, type Racer } from "../support/interleaver.ts";

/** Ids of the tasks that a race begins with; the sequence does not come near them. */
export const TASKS = ["1000001", "1000002", "1000003"] as const;
export const [TASK] = TASKS;
export const KEY = "order:1";
/** Bucket 0 of key space 0. */
export const KEY_LANE = -1;

export const KEY_BUCKETS = bucketSet([0]);

export const orders = queue<number>("orders");

export interface RaceScene {
  readonly database: TestDatabase;
  readonly admin: pg.Client;
  readonly interleaver: Interleaver;
  readonly lane: number;
  readonly probation: number;
}

/** A database with the queue "orders", and sessions for so many racers. */
export async function raceScene(racers: number): Promise<RaceScene> {
  const database = await testDatabase();
  const mill = await database.connect();
  await mill.enqueue(orders, 1);
  const admin = await database.session();
  const { rows } = await admin.query<{ lane: number; priority: number }>(
    "SELECT lane, priority FROM tidemill.task_lanes",
  );
  const laneOf = (priority: number): number =>
    rows.find((row) => row.priority === priority)?.lane ?? 0;
  return {
    database,
    admin,
    interleaver: await Interleaver.open(database, racers),
    lane: laneOf(5),
    probation: laneOf(-1),
  };
}

/** What enqueueing needs when its statements go through the racer. */
export function enqueueContext(database: TestDatabase): EnqueueContext & { readonly db: Database } {
  const db = engineDatabase(database.url, { queryTimeoutMs: 30_000 });
  onCleanup(() => db.close());
  const notifier = new Notifier(db, "races", silentLogger);
  return { db, directory: new QueueDirectory(db), channel: "races", notifier };
}

/** A database for code that wants one, whose statements are moves of the racer. */
export function databaseOf(racer: Racer, db: Database): Database {
  const gated: Pick<Database, "query" | "over" | "transaction"> = {
    query: (statement, values) => racer.connection.query(statement, values),
    over: (executor) => db.over(executor),
    transaction: <T>(work: (tx: Connection) => Promise<T>) => racer.transaction(work),
  };
  return gated as Database;
}

const CLEAR = [
  "tasks",
  "task_packs",
  "task_claims",
  "task_history",
  "task_failures",
  "task_tally",
  "task_idempotency",
  "key_holds",
  "bucket_owners",
  "schedule_firings",
  "events",
  "stream_heads",
]
  .map((table) => `DELETE FROM tidemill.${table}`)
  .join("; ");

/** As many pending tasks as asked for, and nothing else. */
export async function resetPending(
  { admin, lane }: RaceScene,
  count: number,
  key?: string,
): Promise<void> {
  await admin.query(`${CLEAR}; UPDATE tidemill.queues SET paused_at = NULL`);
  await admin.query(
    `INSERT INTO tidemill.tasks
            (id, claim_order, lane, max_attempts, priority, state, tenant, queue, payload,
             partition_key, partition_bucket)
     SELECT id, id, $2, 5, 5, 'pending', 'default', 'orders', '1', $3, $4
       FROM unnest($1::bigint[]) AS id`,
    [TASKS.slice(0, count), key === undefined ? lane : KEY_LANE, key, key === undefined ? null : 0],
  );
}

/** The worker owns the bucket of the key, in epoch 1. */
export async function resetOwner({ admin }: RaceScene, workerId: string): Promise<void> {
  await admin.query(
    `INSERT INTO tidemill.bucket_owners (key_space_id, worker_id, epoch, buckets)
     VALUES (0, $1, 1, '{0}')`,
    [workerId],
  );
}

const HOLDER = randomUUID();

/** One task that runs, under this token, and whose lease has ended or not. */
export async function resetRunning(scene: RaceScene, leaseSeconds: number): Promise<LeaseToken> {
  await resetPending(scene, 1);
  const claimId = randomUUID();
  await scene.admin.query(
    `WITH held AS (
       UPDATE tidemill.tasks
          SET state = 'running', attempt = 1, lease_generation = 1, claim_id = $1,
              leased_by = $2, claimed_at = NOW(), lease_until = NOW() + make_interval(secs => $3)
       RETURNING id, claim_id, leased_by, lease_until
     )
     INSERT INTO tidemill.task_claims (claim_id, worker_id, check_at, task_ids)
     SELECT claim_id, leased_by, lease_until, ARRAY[id] FROM held`,
    [claimId, HOLDER, leaseSeconds],
  );
  return { taskId: TASK, generation: 1, claimId };
}

export interface Claimed {
  readonly claimId: string;
  readonly ids: readonly string[];
}

const toClaimed = (claimId: string, { rows }: ClaimedRows): Claimed => ({
  claimId,
  ids: rows.map((row) => row.split(FIELD)[0] ?? ""),
});

export type Manner = "alone" | "beside";

export interface LaneClaim {
  readonly lane: number;
  readonly manner: Manner;
  readonly take: number;
  /** Defaults to one that nobody knows. */
  readonly workerId?: string;
  readonly proofs?: readonly GrantProof[];
}

/** A claim of a lane, in a transaction of its own whose end is another move. */
export async function claimIn(
  racer: Racer,
  { lane, manner, take, workerId = randomUUID(), proofs = [] }: LaneClaim,
  end?: "COMMIT" | "ROLLBACK",
): Promise<Claimed> {
  const claimId = randomUUID();
  const request = {
    claimId,
    workerId,
    leaseSeconds: 60,
    proofs,
    isBesideOthers: manner === "beside",
    waitMs: 30_000,
  };
  const lanes = [{ lane, floor: 0, take }];
  return await racer.transaction(
    async (tx) => toClaimed(claimId, await claimTasks(tx, request, lanes)),
    end,
  );
}

/** A claim of the key's lane by somebody who takes themselves for its owner. */
export async function claimKeyIn(
  racer: Racer,
  workerId: string,
  epoch: string,
  take: number,
): Promise<Claimed> {
  const claimId = randomUUID();
  const request = {
    claimId,
    workerId,
    leaseSeconds: 60,
    proofs: [],
    keySpaceId: 0,
    baseId: 0,
    epoch,
    marker: null,
    packs: { floor: 0, buckets: KEY_BUCKETS },
    exceptKeys: [],
  };
  const lanes = [{ lane: KEY_LANE, floor: 0, start: 0, held: [], take }];
  return await racer.transaction(async (tx) =>
    toClaimed(claimId, await claimKeyedTasks(tx, request, lanes)),
  );
}

/** What the tables say of the first task. */
export interface TaskFacts {
  readonly live: string | null;
  readonly claimId: string | null;
  readonly cancelReason: string | null;
  /** States in history: one for each time it ended. */
  readonly ended: readonly string[];
  readonly losses: number;
  readonly tally: number;
}

export async function readFacts({ admin }: RaceScene): Promise<TaskFacts> {
  const { rows } = await admin.query<TaskFacts>({
    name: "facts",
    text: `SELECT task.state AS live, task.claim_id AS "claimId",
                  task.cancel_reason AS "cancelReason",
                  array(SELECT state FROM tidemill.task_history WHERE id = $1) AS ended,
                  (SELECT count(*)::int FROM tidemill.task_failures WHERE task_id = $1) AS losses,
                  (SELECT COALESCE(sum(amount), 0)::int FROM tidemill.task_tally) AS tally
             FROM (SELECT) AS one
             LEFT JOIN tidemill.tasks AS task ON task.id = $1`,
    values: [TASK],
  });
  const [facts] = rows;
  if (facts === undefined) throw new Error("no facts");
  return facts;
}

/** Which claim the tables say each live task is held under. */
export async function readHolders({ admin }: RaceScene): Promise<Map<string, string | null>> {
  const { rows } = await admin.query<{ id: string; claim_id: string | null }>(
    "SELECT id, claim_id FROM tidemill.tasks",
  );
  return new Map(rows.map((row) => [row.id, row.claim_id]));
}
