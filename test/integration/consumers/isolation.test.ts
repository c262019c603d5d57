import { expect, it } from "vitest";
import { consumer } from "../../../src/index.ts";
import { testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { FAST } from "../../support/options.ts";

const order = { type: "Order", id: "1" };
const CALM = { ...FAST, heartbeatInterval: 500, heartbeatTimeout: 5_000 };

it("an event that always hangs is found behind events of no concern", async () => {
  const database = await testDatabase();
  const mill = await database.connect();
  await mill.append(order, [{ type: "Other" }, { type: "Other" }, { type: "Mine" }]);
  const hangs = consumer("hangs", { eventTypes: ["Mine"], handle: () => new Promise(() => {}) });
  const options = { ...CALM, batchTimeout: 200, maxConsecutiveFailures: 2 };
  await mill.startWorker({ consumers: [hangs], ...options });
  const status = await eventually(async () => {
    const [found] = await mill.listConsumers();
    expect(found?.state).toBe("quarantined");
    return found;
  });
  expect(status?.poison?.position).toBe(3n);
  expect(status?.checkpoint).toBe(2n);
});

it("what precedes a poison event is handled first, in more than one batch if need be", async () => {
  const database = await testDatabase();
  await database.pool.query("CREATE TABLE handled (position BIGINT)");
  const mill = await database.connect();
  await mill.append(
    order,
    [1, 2, 3, 4, 5].map(() => ({ type: "Paid" })),
  );
  let isPoisonKnown = false;
  const slow = consumer("slow", {
    handle: async ({ position }, { tx }) => {
      if (position === 5n) {
        isPoisonKnown = true;
        throw new Error("poison");
      }
      // Fast until the poison is met: so all that precedes it is to be committed in one batch.
      if (isPoisonKnown) await tx.query("SELECT pg_sleep(0.9)");
      await tx.query("INSERT INTO handled VALUES ($1)", [position]);
    },
  });
  const options = { ...CALM, batchTimeout: 3_000, maxConsecutiveFailures: 1 };
  await mill.startWorker({ consumers: [slow], ...options });
  const status = await eventually(async () => {
    const [found] = await mill.listConsumers();
    expect(found?.state).toBe("quarantined");
    return found;
  });
  expect(status).toMatchObject({ checkpoint: 4n, poison: { position: 5n } });
  const { rows } = await database.pool.query("SELECT position FROM handled ORDER BY position");
  expect(rows.map((row) => Number(row.position))).toEqual([1, 2, 3, 4]);
});

it("a branch of a failed handler cannot write behind the rollback", async () => {
  const database = await testDatabase();
  await database.pool.query("CREATE TABLE written (n INT)");
  const mill = await database.connect();
  await mill.append(order, [{ type: "Paid" }]);
  const branches = consumer("branches", {
    handle: async (_, { tx }) => {
      const goesOn = async (): Promise<void> => {
        for (let n = 0; n < 20; n += 1) await tx.query("INSERT INTO written VALUES ($1)", [n]);
      };
      await Promise.all([goesOn(), Promise.reject(new Error("the other branch fails"))]);
    },
  });
  await mill.startWorker({ consumers: [branches], ...CALM, maxConsecutiveFailures: 5 });
  await eventually(async () => {
    const [found] = await mill.listConsumers();
    expect(found?.state).toBe("quarantined");
  });
  const { rows } = await database.pool.query("SELECT n FROM written");
  expect(rows).toEqual([]);
});

it("new consumers are registered in one order, whoever names them how", async () => {
  const database = await testDatabase();
  const mill = await database.connect();
  const insert = "INSERT INTO tidemill.consumer_partitions VALUES ($1, 1)";
  const other = await database.session();
  await other.query("BEGIN");
  await other.query(insert, ["a"]);
  const consumers = ["b", "a"].map((name) => consumer(name, { handle: () => {} }));
  const starting = mill.startWorker({ consumers, ...CALM });
  await eventually(async () => {
    const waiting = `SELECT FROM pg_stat_activity
      WHERE datname = current_database() AND wait_event = 'transactionid'`;
    expect((await database.pool.query(waiting)).rowCount).toBe(1);
  });
  // It waits for "a" and holds nothing yet that who has "a" could want: no deadlock.
  await other.query("SET LOCAL lock_timeout = '5s'");
  await other.query(insert, ["b"]);
  await other.query("ROLLBACK");
  await starting;
});
