import pg from "pg";
import { beforeEach, describe, expect, it } from "vitest";
import { ConfigError, type WorkerOptions } from "../../../src/index.ts";
import { consumerContract } from "../../contract/consumers.ts";
import {
  appendEvents,
  createHandled,
  expectOnceInOrder,
  readWorkerIds,
} from "../../support/cluster.ts";
import { onCleanup, testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { FAST } from "../../support/options.ts";
import { recording } from "../../support/recording.ts";
import { POOL_SIZE, pooledSuite } from "./pooled.ts";

const { missing, pooler, connect } = pooledSuite();

const POOLED: Omit<WorkerOptions, "consumers"> = { ...FAST, leaderStrategy: "lease" };

consumerContract("through PgBouncer in transaction mode", { missing, options: POOLED, connect });

describe("what needs a session", () => {
  beforeEach((context) => {
    if (missing !== undefined) context.skip(missing);
  });

  const refusalOf = async (options: Partial<WorkerOptions>): Promise<unknown> => {
    const database = await testDatabase();
    const mill = await connect(database);
    const started = mill.startWorker({ ...POOLED, ...options, consumers: [recording("none")] });
    const refusal: unknown = await started.catch((error: unknown) => error);
    expect(await readWorkerIds(database.pool)).toEqual([]);
    const { rows } = await database.pool.query(
      "SELECT worker_id::text FROM tidemill.worker_info WHERE status <> 'stopped'",
    );
    expect(rows).toEqual([]);
    return refusal;
  };

  it("refuses advisory leadership, says why and leaves nothing registered", async () => {
    const refusal = await refusalOf({ leaderStrategy: "advisory" });
    expect(refusal).toBeInstanceOf(ConfigError);
    expect(refusal).toMatchObject({
      message: expect.stringMatching(/"advisory" needs a direct.*pooler.*directUrl.*"lease"/),
    });
  });

  it("refuses to listen, says why and leaves nothing registered", async () => {
    const refusal = await refusalOf({ dispatcherStrategy: "notify" });
    expect(refusal).toBeInstanceOf(ConfigError);
    expect(refusal).toMatchObject({
      message: expect.stringMatching(/LISTEN needs a direct.*pooler.*directUrl.*"poll"/),
    });
  });

  it("listens and locks on directUrl while all else goes through the pooler", async () => {
    const database = await testDatabase();
    await createHandled(database);
    const options = { directUrl: database.url, notifyChannel: "orders_appended" };
    const mill = await connect(database, options);
    const worker = await mill.startWorker({
      ...FAST,
      heartbeatTimeout: 5_000,
      leaderStrategy: "advisory",
      dispatcherStrategy: "notify",
      consumers: [recording("mixed")],
    });
    await eventually(() => expect(worker.isLeader).toBe(true));
    const { rows } = await database.pool.query<{ application_name: string }>(
      `SELECT DISTINCT application_name FROM pg_locks JOIN pg_stat_activity USING (pid)
        WHERE locktype = 'advisory' AND datname = current_database()`,
    );
    expect(rows).toEqual([{ application_name: "tidemill leader" }]);
    // Slower than the reconciling look each second: only notifications can be this quick.
    const appender = await connect(database, options);
    const positions: bigint[] = [];
    const startedAt = performance.now();
    for (let count = 0; count < 10; count += 1) {
      const [position] = await appendEvents(appender, 1);
      await appender.waitFor("mixed", { position: position! });
      positions.push(position!);
    }
    expect(performance.now() - startedAt).toBeLessThan(2_500);
    await expectOnceInOrder(database.pool, ["mixed"], positions);
  });

  it("keeps beating on directUrl while the pooler has no connection to give", async () => {
    const database = await testDatabase();
    const mill = await connect(database, { directUrl: database.url });
    const worker = await mill.startWorker({ ...POOLED, consumers: [recording("alive")] });
    await eventually(() => expect(worker.assigned).toEqual(["alive"]));
    const hogs = await Promise.all(
      Array.from({ length: POOL_SIZE }, async () => {
        const hog = new pg.Client({ connectionString: pooler().through(database.url) });
        await hog.connect();
        onCleanup(() => hog.end());
        await hog.query("BEGIN");
        return hog;
      }),
    );
    const readBeat = async (): Promise<number> => {
      const { rows } = await database.pool.query<{ late: number }>(
        `SELECT extract(epoch FROM heartbeat_at - created_at)::float8 AS late
           FROM tidemill.worker_nodes WHERE worker_id = $1`,
        [worker.id],
      );
      return rows[0]?.late ?? Number.NaN;
    };
    const before = await readBeat();
    // Twice the time after which the others would take it for dead.
    await eventually(async () => expect(await readBeat()).toBeGreaterThan(before + 1), {
      timeoutMs: 4_000,
    });
    for (const hog of hogs) await hog.query("ROLLBACK");
  });
});
