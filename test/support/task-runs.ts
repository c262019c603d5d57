import type pg from "pg";
import { expect } from "vitest";
import {
  type Queue,
  type QueueOptions,
  queue,
  type Worker,
  type WorkerOptions,
} from "../../src/index.ts";
import type { TestDatabase } from "./database.ts";
import { eventually } from "./eventually.ts";
import type { TaskOrder } from "./task-process.ts";
import { QUICK } from "./task-processes.ts";

// No unique key: a task that runs twice shows as two rows. What is accepted is written down as its
// transaction commits, not as it began.
const TABLES = `
  CREATE TABLE runs (
    id         BIGINT GENERATED ALWAYS AS IDENTITY,
    task_id    BIGINT NOT NULL,
    n          INT,
    key        TEXT,
    generation INT NOT NULL,
    claim_id   UUID NOT NULL,
    worker     UUID NOT NULL,
    attempt    INT NOT NULL,
    started    TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(),
    ended      TIMESTAMPTZ
  );
  CREATE INDEX ON runs (id);
  CREATE TABLE effects (
    id         BIGINT GENERATED ALWAYS AS IDENTITY,
    task_id    BIGINT NOT NULL,
    generation INT NOT NULL,
    worker     UUID NOT NULL
  );
  CREATE TABLE accepted (
    task_id BIGINT NOT NULL,
    at      TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp()
  );
  CREATE FUNCTION note_accepted() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO public.accepted (task_id) VALUES (new.id);
    RETURN NULL;
  END $$;
  CREATE CONSTRAINT TRIGGER note_accepted AFTER INSERT ON tidemill.task_history
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note_accepted()`;

/** Where the handlers of task processes write down what they do. */
export async function createRuns({ pool }: TestDatabase): Promise<void> {
  await pool.query(TABLES);
}

export interface Run {
  readonly taskId: string;
  readonly n: number | null;
  readonly key: string | null;
  readonly generation: number;
  readonly claimId: string;
  readonly worker: string;
  readonly attempt: number;
  readonly started: Date;
  readonly ended: Date | null;
}

/** Of one task, or all of them, in the order in which handlers started. */
export async function readRuns(pool: pg.Pool, taskId?: string): Promise<Run[]> {
  const { rows } = await pool.query<Run>(
    `SELECT task_id AS "taskId", n, key, generation, claim_id AS "claimId", worker, attempt,
            started, ended
       FROM runs WHERE $1::bigint IS NULL OR task_id = $1 ORDER BY id`,
    [taskId ?? null],
  );
  return rows;
}

export interface Ended {
  readonly id: string;
  readonly state: string;
  readonly generation: number;
  readonly attempt: number;
  readonly worker: string;
  readonly result: string | null;
  readonly finishedAt: Date;
}

/** History of one task, or of all. */
export async function readHistory(pool: pg.Pool, taskId?: string): Promise<Ended[]> {
  const { rows } = await pool.query<Ended>(
    `SELECT id, state, lease_generation AS generation, attempt, leased_by AS worker, result,
            finished_at AS "finishedAt"
       FROM tidemill.task_history WHERE $1::bigint IS NULL OR id = $1 ORDER BY finished_at, id`,
    [taskId ?? null],
  );
  return rows;
}

export interface Failure {
  readonly attempt: number;
  readonly outcome: string;
  readonly reason: string;
  readonly worker: string;
  readonly at: Date;
}

export async function readFailures(pool: pg.Pool, taskId?: string): Promise<Failure[]> {
  const { rows } = await pool.query<Failure>(
    `SELECT attempt, outcome, reason, worker_id AS worker, at
       FROM tidemill.task_failures WHERE $1::bigint IS NULL OR task_id = $1 ORDER BY at, attempt`,
    [taskId ?? null],
  );
  return rows;
}

export interface LiveTask {
  readonly id: string;
  readonly state: string;
  readonly attempt: number;
  readonly generation: number;
  readonly claimId: string | null;
  readonly worker: string | null;
}

/** What waits or runs, in the order of enqueueing. */
export async function readLive(pool: pg.Pool): Promise<LiveTask[]> {
  const { rows } = await pool.query<LiveTask>(
    `SELECT id, state, attempt, lease_generation AS generation, claim_id AS "claimId",
            leased_by AS worker
       FROM tidemill.tasks ORDER BY id`,
  );
  return rows;
}

/** Waits until so many are in history, and nothing is left; says what is when time is up. */
export async function eventuallyDone(
  { pool }: TestDatabase,
  count: number,
  timeoutMs = 25_000,
): Promise<void> {
  await eventually(
    async () => {
      const { rows } = await pool.query<object>(
        `SELECT (SELECT count(*)::int FROM tidemill.task_history) AS ended,
                (SELECT count(*)::int FROM tidemill.live_tasks) AS live,
                (SELECT count(*)::int FROM tidemill.dead_letters) AS dead`,
      );
      expect(rows).toEqual([{ ended: count, live: 0, dead: 0 }]);
    },
    { timeoutMs, everyMs: 50 },
  );
}

/** Each of these is in history exactly once, as completed. */
export async function expectCompletedOnce(pool: pg.Pool, ids: readonly string[]): Promise<void> {
  const { rows } = await pool.query<{ id: string; state: string }>(
    "SELECT id, state FROM tidemill.task_history ORDER BY id",
  );
  const wanted = ids.map((id) => ({ id, state: "completed" }));
  expect(rows).toEqual(wanted.sort((a, b) => Number(a.id) - Number(b.id)));
}

export const orders = (
  name = "orders",
  options: QueueOptions = {},
): Queue<TaskOrder, unknown, TaskOrder> => queue<TaskOrder>(name, options);

/**
 * A worker in the test's own process that leads and takes no task of the processes: whoever is
 * paused or killed is never the leader, unless a test wants that.
 */
export async function startLeader(
  database: TestDatabase,
  options: Pick<WorkerOptions, "dispatcherStrategy"> = {},
): Promise<Worker> {
  const mill = await database.connect();
  const idle = queue("idle").handle(() => undefined);
  const worker = await mill.startWorker({ ...QUICK, ...options, handlers: [idle] });
  await eventually(() => expect(worker.isLeader).toBe(true));
  return worker;
}
