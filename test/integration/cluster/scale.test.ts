import type pg from "pg";
import { expect, inject, it } from "vitest";
import { Tidemill, type Worker, type WorkerOptions } from "../../../src/index.ts";
import {
  createHandled,
  expectOnceInOrder,
  keepJournal,
  readJournal,
  readOwners,
  steadyAppends,
  waitForAll,
} from "../../support/cluster.ts";
import { onCleanup, testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { FAST } from "../../support/options.ts";
import { startPgBouncer, whyNoPgBouncer } from "../../support/pgbouncer.ts";
import { recording } from "../../support/recording.ts";

const CONSUMERS = Array.from({ length: 25 }, (_, i) => `consumer-${String(i).padStart(2, "0")}`);
const STEPS = [1, 2, 3, 5, 7, 5, 3, 1];

/** Every worker owns the floor or the ceiling of its share, runs it, and is seen to be alive. */
async function eventuallyBalanced(pool: pg.Pool, workers: readonly Worker[]): Promise<void> {
  const share = CONSUMERS.length / workers.length;
  await eventually(async () => {
    const owners = [...(await readOwners(pool)).values()];
    const loads = workers.map((worker) => owners.filter((id) => id === worker.id).length);
    expect(loads.reduce((sum, load) => sum + load, 0)).toBe(CONSUMERS.length);
    expect(Math.min(...loads)).toBeGreaterThanOrEqual(Math.floor(share));
    expect(Math.max(...loads)).toBeLessThanOrEqual(Math.ceil(share));
    expect(workers.map((worker) => worker.assigned.length)).toEqual(loads);
  });
  const { rows } = await pool.query<{ worker_id: string; age: number }>(
    `SELECT worker_id, extract(epoch FROM NOW() - heartbeat_at)::float8 AS age
       FROM tidemill.worker_nodes`,
  );
  expect(rows.map((row) => row.worker_id).sort()).toEqual(workers.map((one) => one.id).sort());
  for (const { age } of rows) expect(age).toBeLessThan(2);
}

// TestComprehensiveScaleUpAndDown
const TITLE = "keeps 25 consumers balanced, exact and where they are while workers come and go";

it(TITLE, async () => {
  await scaleUpAndDown((url) => url, {});
}, 60_000);

it(`${TITLE}, through PgBouncer in transaction mode`, async (context) => {
  const missing = whyNoPgBouncer();
  if (missing !== undefined) context.skip(missing);
  const pooler = await startPgBouncer(inject("databaseUrl"), { default_pool_size: "20" });
  onCleanup(() => pooler.stop());
  await scaleUpAndDown((url) => pooler.through(url), { leaderStrategy: "lease" });
}, 60_000);

async function scaleUpAndDown(
  through: (url: string) => string,
  options: Partial<WorkerOptions>,
): Promise<void> {
  const database = await testDatabase();
  await createHandled(database);
  await keepJournal(database);
  const connect = async (): Promise<Tidemill> => {
    const own = await Tidemill.connect(through(database.url));
    onCleanup(() => own.close());
    return own;
  };
  const mill = await connect();
  const start = async (): Promise<Worker> => {
    const own = await connect();
    return await own.startWorker({
      ...FAST,
      ...options,
      heartbeatInterval: 200,
      // A late heartbeat on a busy machine would be a death, and move what need not move.
      heartbeatTimeout: 5_000,
      batchConnections: 4,
      consumers: CONSUMERS.map((name) => recording(name)),
    });
  };
  const workers = [await start()];
  await eventuallyBalanced(database.pool, workers);
  const appends = steadyAppends(mill, 40);
  let seen = (await readJournal(database.pool)).at(-1)?.id ?? 0;
  const movesSince = async (): Promise<{ from: string | null; to: string | null }[]> => {
    const rows = await readJournal(database.pool, seen);
    seen = rows.at(-1)?.id ?? seen;
    return rows
      .filter((row) => row.what === "owner")
      .map((row) => ({ from: row.before, to: row.after }));
  };
  for (const count of STEPS) {
    while (workers.length < count) {
      const joining = await start();
      workers.push(joining);
      await eventuallyBalanced(database.pool, workers);
      const moves = await movesSince();
      expect(moves.map(({ to }) => to)).toEqual(moves.map(() => joining.id));
      expect(moves).toHaveLength(Math.floor(CONSUMERS.length / workers.length));
    }
    while (workers.length > count) {
      // The oldest first, so that leaders leave as well.
      const leaving = workers.shift();
      await leaving?.stop();
      await eventuallyBalanced(database.pool, workers);
      const moves = await movesSince();
      const between = moves.filter(({ from }) => from !== leaving?.id && from !== null);
      expect(between).toEqual([]);
      expect(moves.filter(({ from }) => from === leaving?.id)).not.toEqual([]);
    }
  }
  const positions = await appends.stop();
  await waitForAll(mill, CONSUMERS, positions.at(-1)!);
  await expectOnceInOrder(database.pool, CONSUMERS, positions);
}
