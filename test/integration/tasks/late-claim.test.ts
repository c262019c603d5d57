import { randomUUID } from "node:crypto";
import { expect, it } from "vitest";
import { silentLogger } from "../../../src/base/log.ts";
import { Database } from "../../../src/db/database.ts";
import { resolveNames } from "../../../src/db/names.ts";
import { queue } from "../../../src/index.ts";
import { claimTasks } from "../../../src/tasks/sql/claim.ts";
import { type Taken, takeLimits, useStarts } from "../../../src/tasks/sql/limits.ts";
import { claimPacks } from "../../../src/tasks/sql/packs.ts";
import { onCleanup, testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { readColumn } from "./scene.ts";

function connect(url: string): Database {
  const db = new Database({
    url,
    names: resolveNames(),
    logger: silentLogger,
    poolSize: 2,
    applicationName: "late-claim",
    preparedStatements: false,
    queryTimeoutMs: 30_000,
    connectTimeoutMs: 10_000,
  });
  onCleanup(() => db.close());
  return db;
}

it("a claim after the deadline of its starts takes nothing, and they can go back", async () => {
  const database = await testDatabase();
  const mill = await database.connect();
  const orders = queue("orders", { limits: { rate: { count: 1, seconds: 60 } } });
  await mill.enqueue(orders, 1);
  const db = connect(database.url);
  const workerId = randomUUID();
  const lanes = await readColumn<number>(database, "SELECT lane FROM tidemill.task_lanes");
  const take = (lateSeconds: number): Promise<Taken> =>
    takeLimits(db, "orders", workerId, { slots: 0, starts: 5, lateSeconds });
  const claim = async ({ deadline }: Taken): Promise<number> => {
    const proofs = [{ queue: "orders", slots: 0, deadline }];
    const facts = {
      claimId: randomUUID(),
      workerId,
      leaseSeconds: 60,
      proofs,
      isBesideOthers: true,
    };
    const wanted = lanes.map((lane) => ({ lane, floor: 0, take: 1 }));
    return (await claimTasks(db, facts, wanted)).rows.length;
  };

  const brief = await take(0.05);
  expect(brief.starts).toBe(1);
  await eventually(async () => {
    const [at] = await readColumn<number>(database, "SELECT date_part('epoch', NOW())");
    expect(at).toBeGreaterThan(brief.deadline ?? Infinity);
  });
  expect(await claim(brief)).toBe(0);
  expect((await take(30)).starts).toBe(0);

  await useStarts(db, "orders", brief.slice ?? "", { used: 0, unused: 1, usedBy: null });
  const long = await take(30);
  expect(long.starts).toBe(1);
  expect(await claim(long)).toBe(1);

  // It counts from the claim, not from the deadline.
  await useStarts(db, "orders", long.slice ?? "", { used: 1, unused: 0, usedBy: null });
  const none = await take(30);
  expect(none.starts).toBe(0);
  expect(none.retrySeconds).toBeGreaterThan(50);
  const [until] = await readColumn<number>(
    database,
    "SELECT date_part('epoch', max(until) - NOW()) FROM tidemill.limit_starts WHERE count > 0",
  );
  expect(until).toBeLessThanOrEqual(0);
});

it("a claim in an older transaction is not dated before what it takes was due", async () => {
  const database = await testDatabase();
  const mill = await database.connect();
  const mails = queue("mails");
  const db = connect(database.url);
  await db.transaction(async (tx) => {
    // A row of its own and a pack: each is claimed by a statement of its own.
    await mill.enqueue(mails, "row", { idempotencyKey: "row" });
    await mill.enqueueMany(
      mails,
      Array.from({ length: 100 }, (_, n) => ({ payload: n })),
    );
    const lanes = await readColumn<number>(database, "SELECT lane FROM tidemill.task_lanes");
    const request = { claimId: randomUUID(), workerId: randomUUID(), leaseSeconds: 60 };
    const wanted = lanes.map((lane) => ({ lane, floor: 0, take: 1 }));
    await claimTasks(tx, { ...request, proofs: [], isBesideOthers: true }, wanted);
    await claimPacks(tx, { ...request, claimId: randomUUID() }, wanted);
  });
  for (const table of ["tasks", "task_packs"]) {
    const early = await readColumn<boolean>(
      database,
      `SELECT claimed_at < created_at FROM tidemill.${table} WHERE claim_id IS NOT NULL`,
    );
    expect(early, table).toEqual([false]);
  }
});
