import { describe, expect, it } from "vitest";
import { failed, queue, type Tidemill } from "../../../src/index.ts";
import { type TestDatabase, testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { BRISK, readColumn } from "./scene.ts";

interface Scene {
  readonly database: TestDatabase;
  readonly mill: Tidemill;
  /** What has run since they died. */
  readonly seen: number[];
}

/** Two tasks of one key that died, and a worker that is mended. */
async function twoDead(): Promise<Scene> {
  const database = await testDatabase();
  const mill = await database.connect();
  const orders = queue<number>("orders", { maxAttempts: 1 });
  const seen: number[] = [];
  let isBroken = true;
  const handler = orders.handle(({ payload }) => {
    if (isBroken) return failed("broken");
    seen.push(payload);
    return undefined;
  });
  await mill.startWorker({ ...BRISK, handlers: [handler] });
  await mill.enqueueMany(
    orders,
    [1, 2].map((payload) => ({ payload, partitionKey: "key" })),
  );
  await eventually(async () => expect(await mill.deadLetters.list()).toHaveLength(2));
  isBroken = false;
  return { database, mill, seen };
}

describe("dead letters", () => {
  it("do not overtake one of their key that another redrive has locked", async () => {
    const { database, mill, seen } = await twoDead();
    const other = await database.session();
    await other.query("BEGIN");
    await other.query("SELECT FROM tidemill.dead_letters WHERE payload = '1' FOR UPDATE");
    let isOver = false;
    const redriving = mill.deadLetters.redrive().finally(() => {
      isOver = true;
    });
    const waiting = `SELECT count(*)::int FROM pg_stat_activity
                      WHERE datname = current_database() AND wait_event_type = 'Lock'`;
    await eventually(async () => {
      if (!isOver) expect(await readColumn(database, waiting)).toEqual([1]);
    });
    expect(await mill.deadLetters.list()).toHaveLength(2);
    await other.query("ROLLBACK");
    expect(await redriving).toBe(2);
    await eventually(() => expect(seen).toEqual([1, 2]));
  });

  it("that died after a redrive began are left to the next one", async () => {
    const { database, mill } = await twoDead();
    // As if the redrive had batches, and it died again between two of them.
    const later = "UPDATE tidemill.dead_letters SET dead_at = NOW() + INTERVAL '1 hour'";
    await database.pool.query(`${later} WHERE payload = '2'`);
    expect(await mill.deadLetters.redrive()).toBe(1);
    expect(await mill.deadLetters.list()).toMatchObject([{ payload: 2 }]);
    const diedBefore = new Date(Date.now() + 86_400_000);
    expect(await mill.deadLetters.redrive({ diedBefore })).toBe(1);
  });
});
