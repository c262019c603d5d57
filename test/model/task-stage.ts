import { expect } from "vitest";
import { silentLogger } from "../../src/base/log.ts";
import { bucketOf } from "../../src/cluster/ring.ts";
import type { Database } from "../../src/db/database.ts";
import { queue, type Tidemill } from "../../src/index.ts";
import type { ClaimedTask } from "../../src/tasks/claimed-task.ts";
import { Housekeeper } from "../../src/tasks/housekeeper.ts";
import { TaskMetrics } from "../../src/tasks/metrics.ts";
import { TaskSession } from "../../src/tasks/session.ts";
import {
  readKeySpaceOwners,
  removeBucketOwner,
  writeBucketOwner,
} from "../../src/tasks/sql/bucket-owners.ts";
import { passTime } from "../../src/testing/sql/time.ts";
import { onCleanup, type TestDatabase, testDatabase } from "../support/database.ts";
import { engineDatabase } from "../support/engine-database.ts";
import { MAX_ATTEMPTS, MAX_LOSSES, type StoredTask, type TaskModel } from "./task-model.ts";
import { type Layout, LEASE_SECONDS, ModelWorker, runTurns } from "./task-worker.ts";

const RULES = { maxAttempts: MAX_ATTEMPTS, maxLosses: MAX_LOSSES };
export const QUEUES = [queue("loose", RULES), queue("strict", { ...RULES, onFailure: "park" })];
export const PARKING = new Set(["strict"]);
/** Longer than any lease and any delay. */
const PASSED_SECONDS = 100;

const names = Array.from({ length: 10_000 }, (_, n) => `key ${n}`);
const [FIRST = ""] = names;
/** Two of them share a bucket. */
export const KEYS = [
  FIRST,
  names.find((name) => name !== FIRST && bucketOf(name) === bucketOf(FIRST)) ?? "",
  names.find((name) => bucketOf(name) !== bucketOf(FIRST)) ?? "",
];
export const WORKERS = 3;

const READ = `
  SELECT id::text AS id, queue, partition_key AS key, state, attempt,
         lease_generation AS generation, claim_id AS "claimId", leased_by AS "workerId",
         on_probation AS "onProbation", losses::int AS losses,
         cancel_reason IS NOT NULL AS cancelling, claim_order::int AS "order",
         COALESCE(lease_until <= NOW(), FALSE) AS expired, NULL AS pack
    FROM tidemill.tasks
   UNION ALL
  SELECT one.id::text, queue, one.key, CASE WHEN claim_id IS NULL THEN 'pending' ELSE 'running' END,
         (claim_id IS NOT NULL)::int, (claim_id IS NOT NULL)::int, claim_id, leased_by,
         FALSE, 0, FALSE, one.id::int, COALESCE(lease_until <= NOW(), FALSE), pack.id::text
    FROM tidemill.task_packs AS pack
   CROSS JOIN LATERAL unnest(pack.ids, string_to_array(pack.keys, chr(30))) AS one(id, key)
   UNION ALL
  SELECT id::text, queue, partition_key, state, attempt, lease_generation, claim_id, leased_by,
         FALSE, 0, FALSE, NULL, FALSE, NULL
    FROM tidemill.task_history
   UNION ALL
  SELECT id::text, queue, partition_key, 'dead', attempt, lease_generation, claim_id, leased_by,
         FALSE, 0, FALSE, NULL, FALSE, NULL
    FROM tidemill.dead_letters`;

// What runs must be in the ledger, or nobody finds it when its worker dies.
const COUNT = `
  SELECT (SELECT COALESCE(sum(amount), 0)::int FROM tidemill.task_tally) AS tally,
         (SELECT count(*)::int
            FROM tidemill.tasks AS task
           WHERE task.state = 'running'
             AND NOT EXISTS (
                   SELECT FROM tidemill.task_claims AS claim
                    WHERE claim.claim_id = task.claim_id
                      AND task.id = ANY (claim.task_ids))) AS unfindable,
         (SELECT count(*)::int
            FROM tidemill.task_packs AS pack
           WHERE pack.claim_id IS NOT NULL
             AND NOT EXISTS (
                   SELECT FROM tidemill.task_claims AS claim
                    WHERE claim.claim_id = pack.claim_id
                      AND pack.id = ANY (claim.pack_ids)
                      AND pack.ids <@ claim.task_ids)) AS unfindable_packs`;

const RESET = `
  DELETE FROM tidemill.tasks;
  DELETE FROM tidemill.task_packs;
  DELETE FROM tidemill.task_history;
  DELETE FROM tidemill.dead_letters;
  DELETE FROM tidemill.task_failures;
  DELETE FROM tidemill.task_claims;
  DELETE FROM tidemill.task_tally;
  DELETE FROM tidemill.task_idempotency;
  DELETE FROM tidemill.key_holds;
  DELETE FROM tidemill.bucket_owners;
  UPDATE tidemill.queues SET paused_at = NULL`;

const byId = (a: { readonly id: string }, b: { readonly id: string }): number =>
  Number(a.id) - Number(b.id);

/** The real thing: a database, and the insides of a few workers. */
export class Stage {
  readonly mill: Tidemill;
  readonly database: TestDatabase;
  readonly db: Database;
  readonly layout: Layout;
  workers: ModelWorker[] = [];
  readonly #sessions: readonly { readonly claims: TaskSession; readonly ends: TaskSession }[];

  private constructor(database: TestDatabase, mill: Tidemill, db: Database, layout: Layout) {
    this.database = database;
    this.mill = mill;
    this.db = db;
    this.layout = layout;
    this.#sessions = Array.from({ length: WORKERS }, () => ({
      claims: new TaskSession(db, { isPooled: false }),
      ends: new TaskSession(db, { isPooled: false, lockTimeoutMs: 100 }),
    }));
    onCleanup(async () => {
      await this.#dismiss();
      for (const { claims, ends } of this.#sessions)
        await Promise.all([claims.close(), ends.close()]);
      await db.close();
    });
  }

  static async open(): Promise<Stage> {
    const database = await testDatabase();
    const mill = await database.connect();
    const db = engineDatabase(database.url);
    for (const one of QUEUES) await mill.enqueue(one, 0); // Makes queues and lanes known.
    const { rows: known } = await database.pool.query<{ name: string; key_space_id: number }>(
      "SELECT name, key_space_id FROM tidemill.queues",
    );
    const { rows: lanes } = await database.pool.query<Layout["lanes"][number]>(
      "SELECT lane, queue, tenant, priority::int AS priority FROM tidemill.task_lanes",
    );
    const spaceOf = new Map(known.map((row) => [row.name, row.key_space_id]));
    return new Stage(database, mill, db, { queues: QUEUES, spaceOf, lanes });
  }

  /** Nothing was ever enqueued, and the first worker owns all buckets. */
  async reset(model: TaskModel): Promise<void> {
    await this.#dismiss();
    await this.database.pool.query(RESET);
    this.workers = this.#sessions.map((_, index) => this.#hire(index));
    for (const { name } of QUEUES) for (const key of KEYS) await this.move(model, name, key, 0);
    await this.workers[0]?.hear(0);
  }

  #hire(index: number): ModelWorker {
    return new ModelWorker({ db: this.db, layout: this.layout, ...this.#sessions[index]! });
  }

  async #dismiss(): Promise<void> {
    for (const worker of this.workers.splice(0)) await worker.crash();
  }

  /** Another one begins in its place, under another name. */
  async crash(index: number): Promise<void> {
    await this.workers[index]?.crash();
    this.workers[index] = this.#hire(index);
  }

  /** The same, but in order; and what it owned goes to its successor. */
  async restart(model: TaskModel, index: number): Promise<void> {
    const before = this.workers[index];
    await before?.stop();
    const next = this.#hire(index);
    this.workers[index] = next;
    for (const { name } of QUEUES) {
      for (const key of KEYS.filter((one) => model.owners.get(`${name}/${one}`) === before?.id)) {
        await this.move(model, name, key, index);
      }
    }
    await next.hear(model.now);
  }

  /** The bucket of the key goes to this worker, as a leader moves it. */
  async move(model: TaskModel, queueName: string, key: string, index: number): Promise<void> {
    const { id } = this.workers[index]!;
    const bucket = bucketOf(key);
    const space = this.layout.spaceOf.get(queueName)!;
    const found = (await readKeySpaceOwners(this.db)).find((one) => one.keySpaceId === space);
    const owners = found?.owners ?? [];
    const none = { buckets: [] as readonly number[], epoch: "0" };
    const known = owners.find(({ worker }) => worker === id) ?? none;
    if (!known.buckets.includes(bucket)) {
      await this.db.transaction(async (tx) => {
        for (const one of owners.filter(({ buckets }) => buckets.includes(bucket))) {
          const left = one.buckets.filter((other) => other !== bucket);
          const isDone =
            left.length === 0
              ? await removeBucketOwner(tx, space, one)
              : await writeBucketOwner(tx, space, one, left);
          expect(isDone).toBe(true);
        }
        const mine = { worker: id, epoch: known.epoch };
        expect(await writeBucketOwner(tx, space, mine, [...known.buckets, bucket])).toBe(true);
      });
    }
    for (const other of KEYS.filter((one) => bucketOf(one) === bucket)) {
      model.owners.set(`${queueName}/${other}`, id);
    }
  }

  /** Leases of this worker end, by its own clock as well. */
  async expire(worker: ModelWorker, parity: number): Promise<void> {
    await this.database.pool.query(
      `UPDATE tidemill.tasks SET lease_until = lease_until - INTERVAL '${PASSED_SECONDS} s'
        WHERE leased_by = $1 AND id % 2 <> $2`,
      [worker.id, parity],
    );
    await this.database.pool.query(
      `UPDATE tidemill.task_packs SET lease_until = lease_until - INTERVAL '${PASSED_SECONDS} s'
        WHERE leased_by = $1 AND id % 2 <> $2`,
      [worker.id, parity],
    );
    await this.database.pool.query(
      `UPDATE tidemill.task_claims SET check_at = check_at - INTERVAL '${PASSED_SECONDS} s'`,
    );
    worker.clock.advance(LEASE_SECONDS * 1_000);
  }

  /** The lane of the queue's rows and packs. */
  laneOf(queueName: string): number {
    const isIts = ({ queue: one, priority }: Layout["lanes"][number]): boolean =>
      one === queueName && priority >= 0;
    return this.layout.lanes.find(isIts)!.lane;
  }

  async timePasses(): Promise<void> {
    await this.db.transaction((tx) => passTime(tx, PASSED_SECONDS));
    for (const { clock } of this.workers) clock.advance(PASSED_SECONDS * 1_000);
  }

  /** One turn of what one worker does for all. Without a leader anybody does what is overdue. */
  async housekeep(): Promise<void> {
    const failures: unknown[] = [];
    const warn = (fields: object, message: string): void => {
      if ("error" in fields) failures.push({ ...fields, message });
    };
    await runTurns({ now: () => 0 }, 1, (clock) => {
      const rest = {
        turnMs: 1_000,
        leaseMs: LEASE_SECONDS * 1_000,
        heartbeatTimeoutMs: LEASE_SECONDS * 1_000,
        workerId: "",
        channel: "model",
      };
      return new Housekeeper(this.db, {
        ...rest,
        term: () => undefined,
        clock,
        logger: { ...silentLogger, warn },
        metrics: new TaskMetrics(),
        onWork: () => {},
      });
    });
    expect(failures).toEqual([]);
  }

  /**
   * The tables hold what the model says, and nothing else.
   *
   * @param waited tasks that had not started in their worker, which may have given them back
   */
  async verify(model: TaskModel, waited: readonly ClaimedTask[] = []): Promise<void> {
    const { rows } = await this.database.pool.query<StoredTask>(READ);
    const stored = new Map(rows.map((row) => [row.id, row]));
    for (const { token } of waited) {
      const row = stored.get(token.taskId);
      const isHeld = row?.state === "running" && row.claimId === token.claimId;
      if (!isHeld) model.end(token, "back", true);
    }
    model.learn(rows);
    const shown = rows.map(({ order: _order, expired: _expired, pack: _pack, ...task }) => task);
    expect(shown.sort(byId)).toEqual(model.show().sort(byId));
    const { rows: counts } = await this.database.pool.query(COUNT);
    const live = rows.filter(({ order, state }) => order !== null || state === "scheduled");
    expect(counts).toEqual([{ tally: live.length, unfindable: 0, unfindable_packs: 0 }]);
  }
}
