import { randomUUID } from "node:crypto";
import { type Clock, systemClock } from "../../../src/base/clock.ts";
import { type Logger, silentLogger } from "../../../src/base/log.ts";
import { Supervisor } from "../../../src/base/supervisor.ts";
import { beginTerm } from "../../../src/cluster/sql/leader.ts";
import { Database } from "../../../src/db/database.ts";
import { resolveNames } from "../../../src/db/names.ts";
import { Notifier } from "../../../src/db/notifier.ts";
import { ScheduleAdmin } from "../../../src/schedules/admin.ts";
import { Scheduler } from "../../../src/schedules/scheduler.ts";
import { QueueDirectory } from "../../../src/tasks/directory.ts";
import type { EnqueueContext } from "../../../src/tasks/enqueue.ts";
import { TaskMetrics } from "../../../src/tasks/metrics.ts";
import { onCleanup, type TestDatabase, testDatabase } from "../../support/database.ts";

export const CHANGES = "schedule_changes";
const CHANNEL = "schedule_tasks";

export interface Scene {
  readonly database: TestDatabase;
  readonly tasks: EnqueueContext;
  readonly admin: ScheduleAdmin;
  /** The worker that holds the current term, and that term. */
  readonly leaderId: string;
  readonly term: bigint;
}

export async function newScene(): Promise<Scene> {
  const database = await testDatabase();
  const tasks = openTasks(database);
  const leaderId = randomUUID();
  const term = await beginTerm(tasks.db, leaderId);
  return { database, tasks, admin: new ScheduleAdmin(tasks, CHANGES), leaderId, term };
}

/** What one process has: connections and a memory of queues of its own. */
export function openTasks(
  database: TestDatabase,
  poolSize = 4,
): EnqueueContext & { readonly db: Database } {
  const db = new Database({
    url: database.url,
    names: resolveNames(),
    logger: silentLogger,
    poolSize,
    applicationName: "schedules",
    preparedStatements: true,
    queryTimeoutMs: 30_000,
    connectTimeoutMs: 10_000,
  });
  const others = db.another(2, silentLogger); // As in a worker, which has pools of its own.
  onCleanup(async () => {
    await Promise.all([db.close(), others.close()]);
  });
  return {
    db,
    directory: new QueueDirectory(others),
    channel: CHANNEL,
    notifier: new Notifier(db, CHANNEL, silentLogger),
  };
}

export interface Running {
  readonly scheduler: Scheduler;
  readonly stop: () => Promise<void>;
}

/** A scheduler as one worker runs it, with connections of its own. */
export function startScheduler(scene: Scene, options: SchedulerSettings = {}): Running {
  const { db, directory } = openTasks(scene.database);
  const scheduler = new Scheduler(db, {
    workerId: scene.leaderId,
    term: options.term ?? (() => scene.term),
    directory,
    channel: CHANNEL,
    clock: options.clock ?? systemClock,
    logger: options.logger ?? silentLogger,
    metrics: new TaskMetrics(),
    onWork: () => {},
  });
  const supervisor = new Supervisor([scheduler]);
  const stop = (): Promise<void> => supervisor.stop();
  onCleanup(stop);
  return { scheduler, stop };
}

export interface SchedulerSettings {
  readonly term?: () => bigint | undefined;
  readonly logger?: Logger;
  readonly clock?: Clock;
}

/** Moves time: the schedule waits since so many seconds ago, on a whole second. */
export async function setBack(scene: Scene, name: string, seconds: number): Promise<Date> {
  const { rows } = await scene.database.pool.query<{ next_at: Date }>(
    `UPDATE tidemill.schedules
        SET next_at = date_trunc('second', NOW()) - make_interval(secs => $2)
      WHERE name = $1 RETURNING next_at`,
    [name, seconds],
  );
  const [row] = rows;
  if (row === undefined) throw new Error(`no schedule ${name}`);
  return row.next_at;
}

export async function setNextAt(scene: Scene, name: string, at: string): Promise<void> {
  await scene.database.pool.query("UPDATE tidemill.schedules SET next_at = $2 WHERE name = $1", [
    name,
    at,
  ]);
}

export interface FiringFact {
  readonly tick: string;
  readonly taskId: string;
}

/** Ticks that fired, oldest first, as the table has them. */
export async function readTicks(scene: Scene, name: string): Promise<FiringFact[]> {
  const { rows } = await scene.database.pool.query<{ tick: Date; task_id: string }>(
    `SELECT tick, task_id FROM tidemill.schedule_firings
      WHERE name = $1 AND kind = 'tick' ORDER BY tick`,
    [name],
  );
  return rows.map((row) => ({ tick: row.tick.toISOString(), taskId: row.task_id }));
}

export async function readTaskIds(scene: Scene, queue?: string): Promise<string[]> {
  const { rows } = await scene.database.pool.query<{ id: string }>(
    "SELECT id FROM tidemill.tasks WHERE $1::text IS NULL OR queue = $1 ORDER BY id",
    [queue ?? null],
  );
  return rows.map((row) => row.id);
}
