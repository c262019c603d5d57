import { expect, it } from "vitest";
import {
  appendEvents,
  createHandled,
  eventuallyOwn,
  expectOnceInOrder,
  readWorkerIds,
  waitForAll,
} from "../../support/cluster.ts";
import { testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { FAST } from "../../support/options.ts";
import { recording } from "../../support/recording.ts";
import { startWorkerProcess } from "../../support/worker-processes.ts";

const NAMES = ["consumer-1", "consumer-2", "consumer-3", "consumer-4"];

it("gives work again to a worker that was taken for dead and beats after all", async () => {
  const database = await testDatabase();
  await createHandled(database);
  const { pool } = database;
  const mill = await database.connect();
  const options = { ...FAST, heartbeatTimeout: 3_000 };
  const consumers = NAMES.map((name) => recording(name));
  const leader = await mill.startWorker({ ...options, consumers });
  await eventually(() => expect(leader.isLeader).toBe(true));
  const late = await mill.startWorker({ ...options, consumers });
  const balance = [
    [leader, 2],
    [late, 2],
  ] as const;
  await eventuallyOwn(pool, balance);
  // Its heartbeats wait for this lock; everything else goes on.
  const session = await database.session();
  await session.query("BEGIN");
  await session.query("SELECT FROM tidemill.worker_nodes WHERE worker_id = $1 FOR NO KEY UPDATE", [
    late.id,
  ]);
  const statusOf = async (): Promise<string | undefined> =>
    (await mill.status()).workers.find((one) => one.id === late.id)?.status;
  await eventually(async () => expect(await statusOf()).toBe("dead"));
  await eventuallyOwn(pool, [[leader, 4]]);
  await session.query("ROLLBACK");
  await eventuallyOwn(pool, balance);
  expect(await statusOf()).toBe("active");
  const positions = await appendEvents(mill, 2);
  await waitForAll(mill, NAMES, positions.at(-1)!);
  await expectOnceInOrder(pool, NAMES, positions);
});

it("goes on after a pause longer than twice the timeout when nobody else is there", async () => {
  const database = await testDatabase();
  await createHandled(database);
  const { pool } = database;
  const mill = await database.connect();
  const options = { ...FAST, heartbeatTimeout: 600 };
  const lone = await startWorkerProcess({ url: database.url, consumers: NAMES, options });
  const before = await appendEvents(mill, 1);
  await eventuallyOwn(pool, [[lone, 4]]);
  await waitForAll(mill, NAMES, before[0]!);
  lone.kill("SIGSTOP");
  await eventually(async () => {
    const { rows } = await pool.query(
      "SELECT FROM tidemill.worker_nodes WHERE heartbeat_at < NOW() - INTERVAL '2 seconds'",
    );
    expect(rows).toHaveLength(1);
  });
  lone.kill("SIGCONT");
  const after = await appendEvents(mill, 1);
  await waitForAll(mill, NAMES, after[0]!);
  await expectOnceInOrder(pool, NAMES, [...before, ...after]);
  expect(await readWorkerIds(pool)).toEqual([lone.id]);
});
