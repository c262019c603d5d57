import { randomUUID } from "node:crypto";
import { systemClock } from "../../../src/base/clock.ts";
import { silentLogger } from "../../../src/base/log.ts";
import type { Database } from "../../../src/db/database.ts";
import type { TaskHandler } from "../../../src/index.ts";
import { Acts } from "../../../src/tasks/acts.ts";
import { rowLane } from "../../../src/tasks/claimed-pack.ts";
import type { TaskPack } from "../../../src/tasks/claimed-task.ts";
import { Claims } from "../../../src/tasks/claims.ts";
import { Executor } from "../../../src/tasks/executor.ts";
import { Finisher } from "../../../src/tasks/finisher.ts";
import { TaskMetrics } from "../../../src/tasks/metrics.ts";
import { Renewer } from "../../../src/tasks/renewer.ts";
import { TaskSession } from "../../../src/tasks/session.ts";
import { settleRefused } from "../../../src/tasks/settlement.ts";
import { Settling } from "../../../src/tasks/settling.ts";
import { findStanding } from "../../../src/tasks/sql/lease.ts";
import { type ClaimedPacks, claimPacks } from "../../../src/tasks/sql/packs.ts";
import { onCleanup, type TestDatabase } from "../../support/database.ts";
import { engineDatabase } from "../../support/engine-database.ts";

const nothing = (): void => {};

export interface PackWorkerOptions {
  readonly leaseSeconds?: number;
  /** Past which it reaches the database. Defaults to that of the database. */
  readonly url?: string;
}

export interface PackWorker {
  readonly db: Database;
  readonly id: string;
  readonly renewer: Renewer;
  readonly claims: Claims;
  readonly executor: Executor;
  /** Takes so many packs of the queue's lane, whole, whatever its pace is. */
  claim(take: number): Promise<readonly TaskPack[]>;
  claimRaw(claimId: string, take: number): Promise<ClaimedPacks>;
}

/** A worker without the loop that decides when to claim: it takes packs when it is told to. */
export async function startPackWorker(
  database: TestDatabase,
  handler: TaskHandler,
  { leaseSeconds = 30, url = database.url }: PackWorkerOptions = {},
): Promise<PackWorker> {
  const db = engineDatabase(url);
  const session = new TaskSession(db, { isPooled: false });
  const ends = new TaskSession(db, { isPooled: false, lockTimeoutMs: 100 });
  const metrics = new TaskMetrics();
  const common = { workerId: randomUUID(), leaseSeconds, clock: systemClock, metrics };
  const options = { ...common, logger: silentLogger, random: Math.random };
  const finisher = new Finisher(ends, {
    ...options,
    onSettled: (...settled) => executor.settled(...settled),
    onRefused: (task, error) => settleRefused(task, error, Math.random),
    onAnswered: () => executor.answered(),
  });
  const executor = new Executor(finisher, new Acts(db, finisher.packs, options), {
    ...options,
    handlers: [handler],
    concurrency: 200,
    agingSeconds: 10,
    fairnessTurn: 50,
    findStanding: (tokens) => findStanding(db, tokens),
    isLimited: () => false,
    onRoom: nothing,
    onDry: nothing,
    onHeadEnded: nothing,
    onKeyedBack: nothing,
    onKeyedLost: nothing,
  });
  const { name } = handler.queue;
  const { rows } = await database.pool.query<{ lane: number; tenant: string; priority: number }>(
    "SELECT lane, tenant, priority FROM tidemill.task_lanes WHERE queue = $1 AND priority >= 0",
    [name],
  );
  const [lane] = rows;
  if (lane === undefined) throw new Error(`nobody enqueued to ${name} yet`);
  const claims = new Claims(session, executor, {
    ...options,
    settling: new Settling("tidemill.task_numbers"),
    sources: {
      laneOf: (one) => (rowLane(one) === lane.lane ? { queue: name, ...lane } : undefined),
      handlerOf: () => handler,
    },
  });
  const renewer = new Renewer(db, executor, { ...options, packs: finisher.packs, isPooled: false });
  const stop = new AbortController();
  const running = [finisher, finisher.packs, renewer].map((one) => one.run(stop.signal));
  onCleanup(async () => {
    stop.abort();
    executor.close();
    await Promise.all(running);
    await Promise.all([session.close(), ends.close()]);
    await db.close();
  });
  const claimRaw = async (claimId: string, take: number): Promise<ClaimedPacks> =>
    await claimPacks(session, { ...common, claimId }, [{ lane: lane.lane, floor: 0, take }]);
  return {
    db,
    id: common.workerId,
    renewer,
    claims,
    executor,
    claimRaw,
    async claim(take) {
      return (await claims.takePacks((claimId) => claimRaw(claimId, take))).packs;
    },
  };
}
