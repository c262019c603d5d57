import { randomUUID } from "node:crypto";
import { expect } from "vitest";
import { systemClock } from "../../../src/base/clock.ts";
import { silentLogger } from "../../../src/base/log.ts";
import { Database, type Queryable } from "../../../src/db/database.ts";
import { resolveNames } from "../../../src/db/names.ts";
import type { TaskHandler } from "../../../src/index.ts";
import { ClaimedRow } from "../../../src/tasks/claimed-row.ts";
import { Claim, ClaimedTask } from "../../../src/tasks/claimed-task.ts";
import { Executor } from "../../../src/tasks/executor.ts";
import { Finisher } from "../../../src/tasks/finisher.ts";
import { KeyClaimer } from "../../../src/tasks/key-claimer.ts";
import type { TakeRows } from "../../../src/tasks/key-space.ts";
import { Limiter } from "../../../src/tasks/limiter.ts";
import { TaskMetrics } from "../../../src/tasks/metrics.ts";
import { ServerWatch } from "../../../src/tasks/server-watch.ts";
import { TaskSession } from "../../../src/tasks/session.ts";
import { Settling } from "../../../src/tasks/settling.ts";
import { onCleanup, type TestDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { range, readColumn } from "./scene.ts";

/** Claims keyed tasks of the queue "orders" when a test says so, and runs nothing. */
export interface KeyOwner {
  readonly keys: KeyClaimer;
  readonly settling: Settling;
  readonly session: TaskSession;
  readonly db: Database;
  /** The ids that a claim takes, in order. */
  claim(): Promise<string[]>;
  /** The same of the heads of held keys. */
  claimHeads(): Promise<string[]>;
}

/** The owner of all buckets. What it asks goes `through` whatever the test puts in between. */
export async function ownAll(
  database: TestDatabase,
  handler: TaskHandler,
  through: (session: Queryable) => Queryable = (session) => session,
): Promise<KeyOwner> {
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
  const buckets = range(360);
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
  const acts = { usesLease: nothing, extend: nothing, progress: nothing, complete: nothing };
  const executor = new Executor(
    finisher,
    { ...acts, workerId, logger: silentLogger },
    {
      ...parts,
      handlers: [handler],
      concurrency: 10,
      agingSeconds: 10,
      findStanding: nothing,
      isLimited: () => false,
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
  const queues = { id: 0, keyConcurrency: 1, isShared: false, queues: ["orders"] };
  const space = { ...queues, baseId: 0, tenant: "default" };
  const server = new ServerWatch(session, () => keys.forget());
  const packs = { isWhole: () => false, take: nothing as never, onOpened: nothing };
  const perKey = (): number => 50;
  const roomOf = (): number => Infinity;
  const shared = { settling, server, limiter, clock: systemClock, perKey, roomOf, packs };
  const keys: KeyClaimer = new KeyClaimer(through(session), executor, space, shared);
  keys.own({ epoch: "1", buckets });
  await keys.open();
  const facts = { workerId, leaseSeconds: 30 };
  const taking = async (claim: (take: TakeRows) => Promise<number>): Promise<string[]> => {
    const ids: string[] = [];
    await claim(async (claiming, isHeldHead) => {
      const one = new Claim(randomUUID());
      const ofRow = { claimedAtMs: 0, trustedUntilMs: 0, isHeldHead };
      const sources = { laneOf: () => undefined, handlerOf: () => handler };
      const { rows } = await claiming(one.id);
      const tasks = rows.map((row) => new ClaimedTask(new ClaimedRow(row), sources, one, ofRow));
      ids.push(...tasks.sort((a, b) => a.claimOrder - b.claimOrder).map(({ id }) => id));
      return tasks;
    });
    return ids;
  };
  return {
    keys,
    settling,
    session,
    db,
    claim: () => taking((take) => keys.claim(1_000, facts, take)),
    claimHeads: () => taking((take) => keys.claimHeads(1_000, facts, take)),
  };
}

/** Those of other databases count: an epoch closes when none on the whole server is older. */
export async function olderTransactionsEnded(database: TestDatabase): Promise<void> {
  const [fence] = await readColumn<string>(database, "SELECT pg_current_xact_id()::text");
  const oldest = "pg_snapshot_xmin(pg_current_snapshot())";
  await eventually(async () => {
    const isOver = await readColumn<boolean>(database, `SELECT ${oldest} >= '${fence}'::xid8`);
    expect(isOver).toEqual([true]);
  });
}
