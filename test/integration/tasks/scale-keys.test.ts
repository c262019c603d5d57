import { expect, it } from "vitest";
import type { Tidemill } from "../../../src/index.ts";
import { type TestDatabase, testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { keyFaults } from "../../support/task-order.ts";
import type { TaskOrder } from "../../support/task-process.ts";
import { startTaskProcess, type TaskProcess } from "../../support/task-processes.ts";
import {
  createRuns,
  eventuallyDone,
  expectCompletedOnce,
  orders,
  readRuns,
  startLeader,
} from "../../support/task-runs.ts";

const ORDERS = orders();
const KEYS = 200;

/** Enqueues one task of every key, round after round, until it is stopped. */
function steadyRounds(mill: Tidemill, most: number): { stop(): Promise<string[]> } {
  const stopping = new AbortController();
  const run = async (): Promise<string[]> => {
    const ids: string[] = [];
    for (let n = 0; n < most && !stopping.signal.aborted; n += 1) {
      const round = Array.from({ length: KEYS }, (_, key) => ({
        payload: { n, act: "work" } as TaskOrder,
        partitionKey: `order:${key}`,
      }));
      ids.push(...(await mill.enqueueMany(ORDERS, round)).map((task) => task.id));
      await eventually(
        async () => expect(ids.length - (await countEnded(mill))).toBeLessThan(1_500),
        { timeoutMs: 20_000, everyMs: 30 },
      );
    }
    return ids;
  };
  const running = run();
  running.catch(() => {}); // Reported by stop().
  return {
    stop: async () => {
      stopping.abort();
      return await running;
    },
  };
}

async function countEnded(mill: Tidemill): Promise<number> {
  return await mill.transaction(async (tx) => {
    const { rows } = await tx.query("SELECT count(*)::int AS n FROM tidemill.task_history");
    return (rows[0] as { n: number }).n;
  });
}

/** Until these workers, and nobody else, own the buckets. */
async function eventuallyOwned(
  { pool }: TestDatabase,
  processes: readonly TaskProcess[],
): Promise<void> {
  const wanted = processes.flatMap((one) => one.ids).sort();
  await eventually(async () => {
    const { rows } = await pool.query<{ worker_id: string }>(
      `SELECT owner.worker_id
         FROM tidemill.bucket_owners AS owner
         JOIN tidemill.key_spaces AS space ON space.id = owner.key_space_id
        WHERE space.name = 'orders' AND owner.buckets <> '{}'
        ORDER BY owner.worker_id`,
    );
    expect(rows.map((row) => row.worker_id)).toEqual(wanted);
  });
}

/** Until work was accepted from every one of these workers. */
async function eventuallyWorked(
  { pool }: TestDatabase,
  processes: readonly TaskProcess[],
): Promise<void> {
  const wanted = processes.flatMap((one) => one.ids).sort();
  await eventually(async () => {
    const { rows } = await pool.query<{ id: string }>(
      "SELECT DISTINCT leased_by::text AS id FROM tidemill.task_history",
    );
    expect(rows.map((row) => row.id)).toEqual(expect.arrayContaining(wanted));
  });
}

it("keeps every key in order from 12 workers to 3 and back to 12, and loses nothing", async () => {
  const database = await testDatabase();
  await createRuns(database);
  await startLeader(database);
  const mill = await database.connect();
  const start = (): Promise<TaskProcess> =>
    startTaskProcess({
      url: database.url,
      queue: "orders",
      workers: 3,
      options: { heartbeatTimeout: 2_000, drainTimeout: 5_000 },
    });
  const rounds = steadyRounds(mill, 40);
  const before = await Promise.all([start(), start(), start(), start()]);
  await eventuallyOwned(database, before);
  await eventuallyWorked(database, before);
  const [stays, ...gone] = before;
  if (stays === undefined) throw new Error("no process stays");
  for (const [index, one] of gone.entries()) one.kill(index === 0 ? "SIGTERM" : "SIGKILL");
  expect(await Promise.all(gone.map((one) => one.ended))).toEqual([0, null, null]);
  await eventuallyOwned(database, [stays]);
  const after = await Promise.all([start(), start(), start()]);
  await eventuallyOwned(database, [stays, ...after]);
  await eventuallyWorked(database, after);
  const ids = await rounds.stop();
  await eventuallyDone(database, ids.length);
  await expectCompletedOnce(database.pool, ids);
  expect(await keyFaults(database.pool)).toEqual([]);
  expect(ids.length).toBeGreaterThanOrEqual(2_000);
  // The kills were in the middle of something: some tasks ran again.
  expect((await readRuns(database.pool)).length).toBeGreaterThan(ids.length);
}, 60_000);
