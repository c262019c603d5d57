import { expect, it } from "vitest";
import type { NewEvent } from "../../../src/index.ts";
import { type TestDatabase, testDatabase } from "../../support/database.ts";

const CHANNEL = "appended-1";
const order = { type: "Order", id: "1" };
const paid: NewEvent = { type: "OrderPaid" };

/**
 * Returns what was heard so far. A notification of our own is sent first: PostgreSQL delivers in
 * the order of commits, so once it is there nothing that was committed before is missing.
 */
async function listen(database: TestDatabase): Promise<() => Promise<string[]>> {
  const client = await database.session();
  let heard: string[] = [];
  let onMark: () => void = () => {};
  client.on("notification", ({ payload = "" }) => {
    if (payload === "mark") onMark();
    else heard.push(payload);
  });
  await client.query(`LISTEN "${CHANNEL}"`);
  return async () => {
    const marked = new Promise<void>((resolve) => {
      onMark = resolve;
    });
    await database.pool.query("SELECT pg_notify($1, 'mark')", [CHANNEL]);
    await marked;
    const before = heard;
    heard = [];
    return before;
  };
}

it("is announced once per commit of the caller, however many appends it holds", async () => {
  const database = await testDatabase();
  const heard = await listen(database);
  const mill = await database.connect({ notifyChannel: CHANNEL });
  await mill.transaction(async (tx) => {
    await mill.append(order, [paid, paid], { tx });
    await mill.append(order, [paid], { tx });
    await mill.append({ type: "Refund", id: "1" }, [paid], { tx });
    expect(await heard()).toEqual([]);
  });
  expect(await heard()).toEqual([""]);
});

it("is not announced when the caller rolls back, or when nothing was appended", async () => {
  const database = await testDatabase();
  const heard = await listen(database);
  const mill = await database.connect({ notifyChannel: CHANNEL });
  const client = await database.session();
  await client.query("BEGIN");
  await mill.append(order, [paid], { tx: client });
  await client.query("ROLLBACK");
  await mill.transaction(async (tx) => {
    const refused = mill.append(order, [paid], { tx, expectedVersion: 9 });
    await expect(refused).rejects.toMatchObject({ code: "TM_WRONG_EXPECTED_VERSION" });
  });
  expect(await heard()).toEqual([]);
});

it("of our own is announced after its commit, when it can be read", async () => {
  const database = await testDatabase();
  const reader = await database.session();
  const mill = await database.connect({ notifyChannel: CHANNEL });
  await reader.query(`LISTEN "${CHANNEL}"`);
  const visible = new Promise<number>((resolve, reject) => {
    reader.once("notification", () => {
      reader
        .query<{ count: number }>("SELECT count(*)::int AS count FROM tidemill.events")
        .then(({ rows }) => resolve(rows[0]?.count ?? 0), reject);
    });
  });
  await mill.append(order, [paid]);
  expect(await visible).toBe(1);
});

it("of our own is announced for all, by fewer notifications than appends", async () => {
  const database = await testDatabase();
  const heard = await listen(database);
  const mill = await database.connect({ notifyChannel: CHANNEL });
  await Promise.all(
    Array.from({ length: 100 }, (_, id) => mill.append({ type: "Order", id: `${id}` }, [paid])),
  );
  await mill.close(); // Waits until all are told.
  const notifications = await heard();
  expect(notifications.length).toBeGreaterThan(0);
  expect(notifications.length).toBeLessThan(100);
});

it("is not announced unless a channel is named", async () => {
  const database = await testDatabase();
  const heard = await listen(database);
  const mill = await database.connect();
  await mill.append(order, [paid]);
  await mill.transaction((tx) => mill.append(order, [paid], { tx }));
  expect(await heard()).toEqual([]);
});
