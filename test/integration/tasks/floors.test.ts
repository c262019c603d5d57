import { randomUUID } from "node:crypto";
import { describe, expect, it } from "vitest";
import { systemClock } from "../../../src/base/clock.ts";
import { silentLogger } from "../../../src/base/log.ts";
import { Database, type Queryable } from "../../../src/db/database.ts";
import { resolveNames } from "../../../src/db/names.ts";
import type { Statement } from "../../../src/db/statement.ts";
import { failed, queue, type TaskHandler } from "../../../src/index.ts";
import { Claim, ClaimedTask } from "../../../src/tasks/claimed-task.ts";
import { Executor } from "../../../src/tasks/executor.ts";
import { Finisher } from "../../../src/tasks/finisher.ts";
import { KeyClaimer } from "../../../src/tasks/key-claimer.ts";
import { Limiter } from "../../../src/tasks/limiter.ts";
import { TaskMetrics } from "../../../src/tasks/metrics.ts";
import { ServerWatch } from "../../../src/tasks/server-watch.ts";
import { TaskSession } from "../../../src/tasks/session.ts";
import { Settling } from "../../../src/tasks/settling.ts";
import { onCleanup, type TestDatabase, testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { BRISK, gate, readColumn } from "./scene.ts";

/** Hands answers on, but for those of one statement, which come when the test says so. */
class LateAnswers implements Queryable {
  readonly #db: Queryable;
  readonly #late: string;
  readonly #release = gate();
  readonly #answered = gate();

  constructor(db: Queryable, late: string) {
    this.#db = db;
    this.#late = late;
  }

  /** The server has answered, and nobody knows it yet. */
  get answered(): Promise<void> {
    return this.#answered.opened;
  }

  release(): void {
    this.#release.open();
  }

  async query<Row>(statement: Statement, values?: readonly unknown[]): Promise<Row[]> {
    const rows = await this.#db.query<Row>(statement, values);
    if (statement.name !== this.#late) return rows;
    this.#answered.open();
    await this.#release.opened;
    return rows;
  }
}

interface Scene {
  readonly keys: KeyClaimer;
  readonly settling: Settling;
  readonly session: TaskSession;
  readonly answers: LateAnswers;
  /** The ids that a claim takes, in order. */
  claim(): Promise<string[]>;
}

const orders = queue("orders", { maxAttempts: 1 });

/** The owner of all buckets, whose looks are answered late. */
async function ownAll(database: TestDatabase, handler: TaskHandler): Promise<Scene> {
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
  const session = new TaskSession(db, { isPooled: false });
  onCleanup(async () => {
    await session.close();
    await db.close();
  });
  const workerId = randomUUID();
  const buckets = Array.from({ length: 360 }, (_, bucket) => bucket);
  await database.pool.query(
    `INSERT INTO tidemill.bucket_owners (key_space_id, worker_id, epoch, buckets)
     VALUES (0, $1, 1, $2)`,
    [workerId, buckets],
  );
  const metrics = new TaskMetrics();
  const parts = { clock: systemClock, logger: silentLogger, metrics };
  const nothing = (): never => {
    throw new Error("nothing ends here");
  };
  const finisher = new Finisher(session, {
    ...parts,
    onSettled: nothing,
    onRefused: nothing,
    onAnswered: nothing,
  });
  const acts = { workerId, logger: silentLogger, extend: nothing, progress: nothing };
  const executor = new Executor(
    finisher,
    { ...acts, complete: nothing },
    {
      ...parts,
      handlers: [handler],
      concurrency: 10,
      agingSeconds: 10,
      lostMs: 1_000,
      random: Math.random,
      fairnessTurn: 50,
      onRoom: nothing,
      onDry: nothing,
      onHeadEnded: nothing,
      onKeyedBack: nothing,
      onKeyedLost: nothing,
    },
  );
  const settling = new Settling("tidemill.task_numbers");
  const limiter = new Limiter(session, { ...parts, workerId, leaseSeconds: 30, held: () => 0 });
  const answers = new LateAnswers(session, "key_lanes_look");
  const space = { id: 0, keyConcurrency: 1, isShared: false, queues: ["orders"] };
  const server = new ServerWatch(session, () => keys.forget());
  const shared = { settling, server, limiter, clock: systemClock };
  const keys: KeyClaimer = new KeyClaimer(answers, executor, space, shared);
  keys.own({ keySpaceId: 0, epoch: "1", buckets });
  await keys.open();
  return {
    keys,
    settling,
    session,
    answers,
    async claim() {
      const ids: string[] = [];
      await keys.claim(1_000, { workerId, leaseSeconds: 30 }, async (claim) => {
        const one = new Claim(randomUUID());
        const facts = { claimedAtMs: 0, trustedUntilMs: 0, isHeldHead: false };
        const sources = { laneOf: () => undefined, handlerOf: () => handler };
        const { rows } = await claim(one.id);
        const tasks = rows.map((row) => new ClaimedTask(row, sources, one, facts));
        ids.push(...tasks.sort((a, b) => a.claimOrder - b.claimOrder).map(({ id }) => id));
        return tasks;
      });
      return ids;
    },
  };
}

/** Those of other databases count: an epoch closes when none on the whole server is older. */
async function olderTransactionsEnded(database: TestDatabase): Promise<void> {
  const [fence] = await readColumn<string>(database, "SELECT pg_current_xact_id()::text");
  const oldest = "pg_snapshot_xmin(pg_current_snapshot())";
  await eventually(async () => {
    const isOver = await readColumn<boolean>(database, `SELECT ${oldest} >= '${fence}'::xid8`);
    expect(isOver).toEqual([true]);
  });
}

describe("a floor that was lowered while a look was on its way", () => {
  it("is not raised by what that look saw: a dead letter runs before its successors", async () => {
    const database = await testDatabase();
    const mill = await database.connect();
    const handler = orders.handle(() => failed("no"));
    const worker = await mill.startWorker({ ...BRISK, handlers: [handler] });
    const first = await mill.enqueue(orders, 1, { partitionKey: "order:1" });
    await eventually(async () => expect((await mill.tasks.get(first.id)).state).toBe("dead"));
    await worker.stop();
    const second = await mill.enqueue(orders, 2, { partitionKey: "order:1" });
    await database.pool.query("DELETE FROM tidemill.bucket_owners");

    const owner = await ownAll(database, handler);
    const { keys, settling, session, answers } = owner;
    await settling.open(session);
    await olderTransactionsEnded(database);
    const looking = keys.look();
    await answers.answered;
    expect(await mill.deadLetters.redrive()).toBe(1);
    keys.changed(); // As the announcement of the redrive does.
    answers.release();
    await looking;
    expect(settling.settled).toBeGreaterThanOrEqual(Number(second.id));
    expect(await owner.claim()).toEqual([first.id, second.id]);
  });
});

describe("a floor that rests on a claim", () => {
  it("is no good to claims after the crash that took that one back", async () => {
    const database = await testDatabase();
    const { pool } = database;
    const mill = await database.connect();
    const handler = orders.handle(() => failed("no"));
    const first = await mill.enqueue(orders, 1, { partitionKey: "order:1" });
    const owner = await ownAll(database, handler);
    const { keys, settling, session, answers } = owner;
    answers.release();
    await keys.look();
    await settling.open(session);
    expect(await owner.claim()).toEqual([first.id]);
    const second = await mill.enqueue(orders, 2, { partitionKey: "order:1" });
    await keys.workArrived();
    await olderTransactionsEnded(database);
    await keys.look();
    expect(settling.settled).toBeGreaterThanOrEqual(Number(first.id));

    // What a crash leaves of a claim that was not flushed, and of an unlogged table.
    await pool.query(
      `UPDATE tidemill.tasks SET state = 'pending', attempt = 0, lease_generation = 0,
              claim_id = NULL, leased_by = NULL, claimed_at = NULL, lease_until = NULL`,
    );
    await pool.query("DELETE FROM tidemill.task_claims");
    await pool.query("TRUNCATE tidemill.crash_marker");
    expect(await owner.claim()).toEqual([]);
    await keys.look();
    expect(await owner.claim()).toEqual([first.id, second.id]);
  });
});
