import { randomUUID } from "node:crypto";
import { describe, expect, it } from "vitest";
import { completed, failed, queue, type TaskContext, type Tidemill } from "../../../src/index.ts";
import { openClaimedPacks } from "../../../src/tasks/sql/open-packs.ts";
import { completePacks } from "../../../src/tasks/sql/packs.ts";
import { type TestDatabase, testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { startLossyProxy } from "../../support/task-proxy.ts";
import { type PackWorkerOptions, startPackWorker } from "./pack-rig.ts";
import { gate, range, readColumn } from "./scene.ts";

type Order = { readonly n: number };
const ORDERS = queue<Order>("orders", { backoff: { kind: "fixed", baseSeconds: 0 } });

const bulk = (count: number, from = 0): { payload: Order }[] =>
  range(count).map((n) => ({ payload: { n: from + n } }));

interface Where {
  readonly ended: number;
  readonly packs: number;
  readonly rows: number;
}

const COUNT = `
  SELECT (SELECT count(*)::int FROM tidemill.task_history WHERE state = 'completed') AS ended,
         (SELECT count(*)::int FROM tidemill.task_packs) AS packs,
         (SELECT count(*)::int FROM tidemill.tasks) AS rows`;

const whereIn = async ({ pool }: TestDatabase): Promise<Where | undefined> =>
  (await pool.query<Where>(COUNT)).rows[0];

const eventuallyAt = async (database: TestDatabase, where: Where): Promise<void> =>
  await eventually(async () => expect(await whereIn(database)).toEqual(where));

type Handle = (order: Order, context: TaskContext, mill: Tidemill) => unknown;

/** Thirty tasks in one pack, which a worker has claimed whole. */
async function claimedPack(handle: Handle, options: PackWorkerOptions = {}) {
  const database = await testDatabase();
  const mill = await database.connect();
  const handles = await mill.enqueueMany(ORDERS, bulk(30));
  const handler = ORDERS.handle(async (task, context) => {
    return (await handle(task.payload, context, mill)) as undefined;
  });
  const worker = await startPackWorker(database, handler, options);
  const ids = handles.map(({ id }) => id);
  const [pack] = await worker.claim(1);
  if (pack === undefined) throw new Error("nothing was claimed");
  return { database, mill, handles, ids, worker, pack };
}

describe("a bulk", () => {
  it("waits in packs of at most a hundred, with ids in order", async () => {
    const database = await testDatabase();
    const mill = await database.connect();
    const handles = await mill.enqueueMany(ORDERS, bulk(250));
    const sizes = "SELECT cardinality(ids) FROM tidemill.task_packs ORDER BY id";
    expect(await readColumn<number>(database, sizes)).toEqual([84, 84, 82]);
    const ids = handles.map(({ id }) => Number(id));
    expect(ids).toEqual(ids.toSorted((a, b) => a - b));
    expect((await mill.queues.list())[0]).toMatchObject({ depths: { 5: 250 }, running: 0 });
  });

  it.each([
    ["few", bulk(19)],
    ["of one key", bulk(30).map((task) => ({ ...task, partitionKey: "key" }))],
    ["late", bulk(30).map((task) => ({ ...task, delaySeconds: 60 }))],
    ["once", bulk(30).map((task, n) => ({ ...task, idempotencyKey: `${n}` }))],
    ["mixed", bulk(30).map((task, n) => ({ ...task, priority: n % 10 }))],
    ["binary", range(30).map(() => ({ payload: new Uint8Array(3) }))],
    ["large", range(100).map(() => ({ payload: { text: "x".repeat(1_000) } }))],
  ])("is rows when its tasks are %s", async (_, tasks) => {
    const database = await testDatabase();
    const mill = await database.connect();
    await mill.enqueueMany(queue("orders"), tasks);
    expect(await whereIn(database)).toEqual({ ended: 0, packs: 0, rows: tasks.length });
  });

  it("leaves nothing when its transaction is rolled back", async () => {
    const database = await testDatabase();
    const mill = await database.connect();
    const rolledBack = mill.transaction(async (tx) => {
      await mill.enqueueMany(ORDERS, bulk(30), { tx });
      throw new Error("no");
    });
    await expect(rolledBack).rejects.toThrow("no");
    expect(await whereIn(database)).toEqual({ ended: 0, packs: 0, rows: 0 });
    expect((await mill.queues.list())[0]).toMatchObject({ depths: {} });
  });
});

describe("a task in a pack that waits", () => {
  it("is found, listed, explained and cancelled like any other", async () => {
    const database = await testDatabase();
    const mill = await database.connect();
    const handles = await mill.enqueueMany(
      ORDERS,
      bulk(120).map((task) => ({ ...task, kind: "rush" })),
    );
    const ids = handles.map(({ id }) => id);
    const id = ids[70] ?? "";
    const facts = { id, state: "pending", attempt: 0, payload: { n: 70 }, kind: "rush" };
    expect(await mill.tasks.get(id)).toMatchObject(facts);
    const page = await mill.tasks.list({ queue: "orders", state: "pending", limit: 50 });
    expect(page.map((task) => task.id)).toEqual(ids.slice(70).toReversed());
    const next = await mill.tasks.list({ before: id, limit: 1_000 });
    expect(next.map((task) => task.id)).toEqual(ids.slice(0, 70).toReversed());
    expect(await mill.tasks.list({ state: "running" })).toEqual([]);
    expect(await mill.tasks.why(id)).toMatch(/no live worker/);
    await expect(mill.tasks.cancel(id, { tenant: "other" })).rejects.toThrow("no task");
    expect(await whereIn(database)).toMatchObject({ packs: 2 });
    expect(await mill.tasks.cancel(id)).toBe("cancelled");
    expect(await whereIn(database)).toEqual({ ended: 0, packs: 1, rows: 59 });
    expect(await mill.tasks.get(id)).toMatchObject({ state: "cancelled" });
    expect((await mill.queues.list())[0]).toMatchObject({ depths: { 5: 119 } });
  });

  it("is on one page of the list, however the ids of bulks are mixed", async () => {
    const database = await testDatabase();
    const mill = await database.connect();
    await mill.enqueue(ORDERS, { n: 0 });
    await database.pool.query(
      `DELETE FROM tidemill.tasks;
       INSERT INTO tidemill.task_packs
              (id, last_id, lane, max_attempts, priority, tenant, queue, ids, payloads)
       SELECT ids[1], ids[cardinality(ids)], lane, 5, 5, 'default', 'orders', ids,
              array_to_string(ARRAY(SELECT 0 FROM unnest(ids)), chr(30))
         FROM tidemill.task_lanes,
              (VALUES (ARRAY[11, 13, 15, 21]), (ARRAY[12, 14, 16]), (ARRAY[17, 18])) AS one(ids)
        WHERE priority = 5`,
    );
    const ids: string[] = [];
    for (;;) {
      const last = ids.at(-1);
      const page = await mill.tasks.list({ limit: 1, ...(last ? { before: last } : {}) });
      if (page.length === 0) break;
      ids.push(...page.map(({ id }) => id));
    }
    expect(ids).toEqual(["21", "18", "17", "16", "15", "14", "13", "12", "11"]);
  });

  it("is not opened while its queue is paused, whoever has room", async () => {
    const database = await testDatabase();
    const mill = await database.connect();
    await mill.enqueueMany(ORDERS, bulk(250));
    await mill.queues.pause("orders");
    const others = queue<number>("others");
    await mill.startWorker({
      handlers: [ORDERS.handle(() => {}), others.handle(() => {})],
      dispatcherStrategy: "notify",
    });
    for (const n of range(5)) await (await mill.enqueue(others, n)).result();
    expect(await whereIn(database)).toMatchObject({ packs: 3, rows: 0 });
    await mill.queues.resume("orders");
    await eventuallyAt(database, { ended: 255, packs: 0, rows: 0 });
  });

  it("stays while its queue is paused", async () => {
    const { database, mill, worker } = await claimedPack(() => undefined);
    await mill.queues.pause("orders");
    await mill.enqueueMany(ORDERS, bulk(30));
    expect(await worker.claim(1)).toEqual([]);
    await mill.queues.resume("orders");
    expect(await worker.claim(1)).toHaveLength(1);
    await eventuallyAt(database, { ended: 60, packs: 0, rows: 0 });
  });
});

describe("a pack that was claimed", () => {
  it("completes as one, with the result of each task", async () => {
    const { database, handles } = await claimedPack(({ n }) => (n % 2 ? completed(n) : undefined));
    await eventuallyAt(database, { ended: 30, packs: 0, rows: 0 });
    for (const [n, handle] of handles.entries()) {
      expect(await handle.result()).toBe(n % 2 ? n : undefined);
    }
    const history = "SELECT DISTINCT attempt * 10 + lease_generation FROM tidemill.task_history";
    expect(await readColumn(database, history)).toEqual([11]);
  });

  it("shows its tasks as running", async () => {
    const { database, mill, ids, worker } = await claimedPack(() => new Promise(() => {}));
    expect(await whereIn(database)).toEqual({ ended: 0, packs: 1, rows: 0 });
    const running = { state: "running", attempt: 1, workerId: worker.id };
    expect(await mill.tasks.get(ids[3] ?? "")).toMatchObject(running);
    expect((await mill.queues.list())[0]).toMatchObject({ running: 30 });
  });

  it("does not keep the ends of the others waiting for one that is slow", async () => {
    const slow = gate();
    const { database, mill, ids } = await claimedPack(async ({ n }) => {
      if (n === 7) await slow.opened;
      return completed(n);
    });
    await eventuallyAt(database, { ended: 29, packs: 0, rows: 1 });
    expect(await mill.tasks.get(ids[7] ?? "")).toMatchObject({ state: "running", attempt: 1 });
    slow.open();
    await eventuallyAt(database, { ended: 30, packs: 0, rows: 0 });
  });

  it("lets one fail and be tried again, and the others complete", async () => {
    const { database, mill, ids } = await claimedPack(({ n }) =>
      n === 7 ? failed("no") : completed(n),
    );
    await eventuallyAt(database, { ended: 29, packs: 0, rows: 1 });
    const id = ids[7] ?? "";
    await eventually(async () =>
      expect(await mill.tasks.get(id)).toMatchObject({ state: "pending", attempt: 1 }),
    );
    expect(await mill.tasks.failures(id)).toMatchObject([{ attempt: 1, reason: "no" }]);
  });

  it("is opened when a task of it is extended, or says how far it is", async () => {
    const over = gate();
    const { database, mill, ids } = await claimedPack(async ({ n }, context) => {
      if (n === 3) await context.extend(100);
      if (n === 5) await context.progress({ done: 0.5 });
      await over.opened;
      return undefined;
    });
    await eventuallyAt(database, { ended: 0, packs: 0, rows: 30 });
    await eventually(async () =>
      expect(await mill.tasks.get(ids[5] ?? "")).toMatchObject({ progress: { done: 0.5 } }),
    );
    over.open();
    await eventuallyAt(database, { ended: 30, packs: 0, rows: 0 });
  });

  it("lets a task complete in the transaction of its handler, or not", async () => {
    const tries: string[] = [];
    const { database, mill, ids } = await claimedPack(async ({ n }, context, own) => {
      if (n !== 3 && n !== 5) return undefined;
      await own.transaction(async (tx) => {
        const { taskId, generation, claimId } = context.token;
        const values = [taskId, generation, claimId];
        await tx.query("SELECT tidemill.assert_lease($1, $2, $3)", values);
        await context.complete(tx, { n });
        tries.push(taskId);
        if (n === 5) throw new Error("no");
      });
      return undefined;
    });
    await eventuallyAt(database, { ended: 29, packs: 0, rows: 1 });
    expect(await mill.tasks.get(ids[3] ?? "")).toMatchObject({ result: { n: 3 } });
    await eventually(async () =>
      expect(await mill.tasks.get(ids[5] ?? "")).toMatchObject({ state: "pending", attempt: 1 }),
    );
    expect(new Set(tries)).toEqual(new Set([ids[3], ids[5]]));
  });

  it("lets all its tasks complete at once in transactions of their handlers", async () => {
    const { database } = await claimedPack(async ({ n }, context, own) => {
      await own.transaction(async (tx) => await context.complete(tx, n));
    });
    await eventuallyAt(database, { ended: 30, packs: 0, rows: 0 });
    const attempts = "SELECT DISTINCT attempt FROM tidemill.task_history";
    expect(await readColumn(database, attempts)).toEqual([1]);
  });

  it("lets a task complete in a transaction that sees nothing of later ones", async () => {
    const { database, mill, ids } = await claimedPack(async ({ n }, context, own) => {
      if (n !== 3) return;
      await own.transaction(async (tx) => {
        await tx.query("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ");
        await tx.query("SELECT count(*) FROM tidemill.tasks");
        await context.complete(tx, n);
      });
    });
    await eventuallyAt(database, { ended: 30, packs: 0, rows: 0 });
    expect(await mill.tasks.get(ids[3] ?? "")).toMatchObject({ result: 3, attempt: 1 });
  });

  it("refuses leases that nobody holds", async () => {
    const { database, ids, pack, worker } = await claimedPack(() => new Promise(() => {}));
    const { db } = worker;
    const assert = (generation: number, claimId: string) =>
      database.pool.query("SELECT tidemill.assert_lease($1, $2, $3)", [
        ids[29],
        generation,
        claimId,
      ]);
    await assert(1, pack.claimId);
    await expect(assert(2, pack.claimId)).rejects.toMatchObject({ code: "TML01" });
    await expect(assert(1, randomUUID())).rejects.toMatchObject({ code: "TML01" });
    // As after a crash that took back the claim, when another worker has the pack.
    const stale = [{ id: pack.id, claimId: randomUUID(), results: [] }];
    const nothing = { done: new Set(), locked: new Set() };
    expect(await completePacks(db, stale, [])).toEqual(nothing);
    expect(await openClaimedPacks(db, stale)).toEqual(nothing);
    expect(await whereIn(database)).toEqual({ ended: 0, packs: 1, rows: 0 });
  });

  it("tells a task that it is cancelled, and no other", async () => {
    const { database, mill, ids, worker } = await claimedPack(async ({ n }, { signal }) => {
      if (n !== 7) return undefined;
      await new Promise((resolve) => signal.addEventListener("abort", resolve));
      return failed("cancelled");
    });
    await eventually(async () => expect((await whereIn(database))?.ended).toBe(29));
    const id = ids[7] ?? "";
    expect(await mill.tasks.cancel(id)).toBe("cancelling");
    worker.renewer.changed();
    await eventually(async () =>
      expect(await mill.tasks.get(id)).toMatchObject({ state: "cancelled" }),
    );
  });

  it("keeps its lease as long as one of its tasks runs", async () => {
    const over = gate();
    const options = { leaseSeconds: 2 };
    const { database, ids, mill } = await claimedPack(() => over.opened, options);
    await mill.startWorker({ handlers: [queue("others").handle(() => {})] }); // It reaps.
    const until = "SELECT max(lease_until) > min(claimed_at) + INTERVAL '5 s' FROM tidemill.tasks";
    await eventually(async () => expect(await readColumn(database, until)).toEqual([true]));
    over.open();
    await eventuallyAt(database, { ended: 30, packs: 0, rows: 0 });
    expect(await mill.tasks.get(ids[0] ?? "")).toMatchObject({ attempt: 1 });
  });

  it("goes back task by task when its worker is lost, and its late end is refused", async () => {
    const over = gate();
    const { database, mill, ids, worker, pack } = await claimedPack(() => over.opened);
    await database.pool.query(
      `UPDATE tidemill.task_packs SET lease_until = NOW();
       UPDATE tidemill.task_claims SET check_at = NOW()`,
    );
    await mill.startWorker({ handlers: [queue("others").handle(() => {})] }); // It reaps.
    await eventually(async () =>
      expect(await mill.tasks.get(ids[0] ?? "")).toMatchObject({ state: "pending", attempt: 1 }),
    );
    over.open();
    await eventually(() => expect([...worker.executor.held]).toEqual([]));
    expect(pack.state).toBe("open");
    expect(await whereIn(database)).toEqual({ ended: 0, packs: 0, rows: 30 });
    const probation = "SELECT DISTINCT on_probation FROM tidemill.tasks";
    expect(await readColumn(database, probation)).toEqual([true]);
  });

  it("is completed once when the answer to its completion is lost", async () => {
    const database = await testDatabase();
    const proxy = await startLossyProxy(database.url);
    const mill = await database.connect();
    await mill.enqueueMany(ORDERS, bulk(30));
    const over = gate();
    const handler = ORDERS.handle(() => over.opened);
    const worker = await startPackWorker(database, handler, { url: proxy.url });
    await worker.claim(1);
    await mill.enqueueMany(ORDERS, bulk(20)); // Opens the session on which ends are written.
    over.open();
    await eventually(async () => expect((await whereIn(database))?.ended).toBe(30));
    await worker.claim(1);
    proxy.loseNextAnswers();
    await eventuallyAt(database, { ended: 50, packs: 0, rows: 0 });
    await eventually(() => expect([...worker.executor.held]).toEqual([]));
    expect(await whereIn(database)).toEqual({ ended: 50, packs: 0, rows: 0 });
  });

  it("is given back when the answer to the claim is lost", async () => {
    const { database, mill, worker } = await claimedPack(() => undefined);
    await mill.enqueueMany(ORDERS, bulk(40));
    const lost = worker.claims.takePacks(async (claimId) => {
      await worker.claimRaw(claimId, 1);
      throw new Error("cut");
    });
    await expect(lost).rejects.toThrow("cut");
    await worker.claims.undoDoubtful();
    await eventuallyAt(database, { ended: 30, packs: 0, rows: 40 });
    const facts = "SELECT DISTINCT state || attempt || (claim_id IS NULL) FROM tidemill.tasks";
    expect(await readColumn(database, facts)).toEqual(["pending0true"]);
  });

  it("is neither reaped nor lost while a transaction has it locked", async () => {
    let isAborted = false;
    const locked = gate(); // Before that the end of one of them would open the pack.
    const { database, mill, ids, pack, worker } = await claimedPack(
      async ({ n }, { signal }) => {
        await locked.opened;
        if (n !== 7) return;
        await new Promise((resolve) => signal.addEventListener("abort", resolve));
        isAborted = true;
      },
      { leaseSeconds: 3 }, // Renewing it would open it, too.
    );
    const session = await database.session();
    await session.query("BEGIN");
    // As assert_lease does.
    await session.query("SELECT FROM tidemill.task_packs WHERE id = $1 FOR UPDATE", [pack.id]);
    locked.open();
    await mill.startWorker({ handlers: [queue("others").handle(() => {})] }); // It reaps.
    const lapsed = "SELECT lease_until < NOW() - INTERVAL '1 s' FROM tidemill.task_packs";
    await eventually(async () => expect(await readColumn(database, lapsed)).toEqual([true]));
    expect(await whereIn(database)).toEqual({ ended: 0, packs: 1, rows: 0 });
    expect([...worker.executor.held].map(({ id }) => id)).toEqual(ids);
    expect(isAborted).toBe(false);
    await session.query("COMMIT"); // From now on it is whose it is first.
    await eventually(async () => expect(await whereIn(database)).toMatchObject({ packs: 0 }));
  });
});
