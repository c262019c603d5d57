import pg from "pg";
import { describe, expect, it } from "vitest";
import type { Consumer, Tidemill, WorkerOptions } from "../../../src/index.ts";
import { onCleanup, type TestDatabase, testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import {
  backendOf,
  falseGapsIn,
  foreignInsert,
  gapsIn,
  Handled,
  isBlocked,
  positionsIn,
  recordingLogger,
} from "../../support/handled.ts";
import { FAST } from "../../support/options.ts";

/*
 * The schedules by which the obvious gap rules lose events, driven by hand: each session stands
 * for an appender that is somewhere between its first statement and its commit.
 */

interface Scene {
  readonly database: TestDatabase;
  readonly mill: Tidemill;
  readonly handled: Handled;
  readonly all: Consumer;
  readonly lines: ReturnType<typeof recordingLogger>["lines"];
}

async function scene(): Promise<Scene> {
  const database = await testDatabase();
  const { logger, lines } = recordingLogger();
  const mill = await database.connect({ logger });
  const handled = await Handled.in(database);
  return { database, mill, handled, all: handled.consumer("all"), lines };
}

const start = (mill: Tidemill, all: Consumer, options: Partial<WorkerOptions> = {}) =>
  mill.startWorker({ ...FAST, dispatcherInterval: 10, ...options, consumers: [all] });

const stream = (id: string | number) => ({ type: "Order", id: String(id) });
const paid = [{ type: "Paid" }];

/** Begins a transaction that holds a transaction id, and nothing else yet. */
async function beginWriting(database: TestDatabase): Promise<pg.Client> {
  const session = await database.session();
  await session.query("BEGIN");
  await session.query("SELECT pg_current_xact_id()");
  return session;
}

/** The reader has looked at the open gap for so long, and so often. */
async function isHeldFor(mill: Tidemill, seconds: number): Promise<void> {
  await eventually(() => {
    expect(mill.metrics.frontierHeldSeconds.value() ?? 0).toBeGreaterThan(seconds);
  });
}

/** Nothing that was appended is missing, repeated or out of order, and no audit row lies. */
async function expectAllHandled({ database, mill, handled, all }: Scene): Promise<void> {
  const positions = await positionsIn(database);
  await mill.waitFor(all, { position: BigInt(positions.at(-1) ?? 0) }, { timeoutMs: 10_000 });
  expect(await handled.by(all.name)).toEqual(positions);
  expect(await falseGapsIn(database)).toEqual([]);
}

describe("an append that is still open", () => {
  it("S1: is waited for though its transaction id is not below any recorded xmax", async () => {
    const one = await scene();
    const { database, mill, handled, all } = one;
    await start(mill, all);
    const b = await beginWriting(database);
    const a = await beginWriting(database);
    const early = await mill.append(stream("a"), paid, { tx: a });
    const late = await mill.append(stream("b"), paid, { tx: b });
    expect([early.position, late.position]).toEqual([1n, 2n]);
    await b.query("COMMIT");
    // The trap: nothing newer has completed, so xmin and xmax are both the id of the open append.
    const { rows } = await database.pool.query<{ snapshot: string }>(
      "SELECT pg_current_snapshot()::text AS snapshot",
    );
    expect(rows[0]?.snapshot).toMatch(/^\d+:\d+:/);
    await isHeldFor(mill, 0.3);
    expect(await handled.by("all")).toEqual([]);
    await a.query("COMMIT");
    await expectAllHandled(one);
  });

  it("S2: is waited for though its insert draws a position before any row is written", async () => {
    const one = await scene();
    const { database, mill, handled, all } = one;
    await database.pool.query(
      `CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS
       $$ BEGIN PERFORM pg_advisory_xact_lock_shared(42); RETURN NEW; END $$;
       CREATE TRIGGER hold BEFORE INSERT ON tidemill.events FOR EACH ROW
         WHEN (NEW.stream_type = 'Held') EXECUTE FUNCTION hold()`,
    );
    const gate = await database.session();
    await gate.query("SELECT pg_advisory_lock(42)");
    await start(mill, all);
    // Position 1 would log the sequence and so draw an id.
    await mill.waitFor(all, await mill.append(stream(1), paid));
    const foreign = await database.session();
    const pid = await backendOf(foreign);
    const inserting = foreignInsert(foreign, "Held");
    await isBlocked(database, pid);
    const { rows } = await database.pool.query<{ hasId: boolean }>(
      `SELECT backend_xid IS NOT NULL AS "hasId" FROM pg_stat_activity WHERE pid = $1`,
      [pid],
    );
    expect(rows).toEqual([{ hasId: true }]);
    expect((await mill.append(stream(2), paid)).position).toBe(3n);
    await isHeldFor(mill, 1.5); // Long enough for the proof by lock holders, too.
    expect(await handled.by("all")).toEqual([1]);
    await gate.query("SELECT pg_advisory_unlock(42)");
    expect(await inserting).toBe(2);
    await expectAllHandled(one);
  });

  it("S8b: does not hold or hide events whose transaction ids are out of order", async () => {
    const one = await scene();
    const { database, mill, handled, all } = one;
    await start(mill, all);
    const c = await beginWriting(database);
    const unrelated = await beginWriting(database);
    const b = await beginWriting(database);
    await mill.append(stream("same"), paid, { tx: b });
    await b.query("COMMIT");
    const second = await mill.append(stream("same"), paid, { tx: c });
    await c.query("COMMIT");
    expect([second.position, second.toVersion]).toEqual([2n, 2n]);
    // Handled while the oldest transaction of the three is open, in the stream's own order.
    await mill.waitFor(all, second, { timeoutMs: 5_000 });
    expect(await handled.by("all")).toEqual([1, 2]);
    await unrelated.query("ROLLBACK");
    await expectAllHandled(one);
  });

  it("is waited for when it is prepared, and delivered when that is committed", async () => {
    const one = await scene();
    const { database, mill, handled, all } = one;
    await start(mill, all);
    const session = await database.session();
    const gid = `held ${database.url}`;
    onCleanup(() => database.pool.query(`ROLLBACK PREPARED '${gid}'`).catch(() => {}));
    await session.query("BEGIN");
    await mill.append(stream(1), paid, { tx: session });
    await mill.append(stream(2), paid);
    await isHeldFor(mill, 1.3); // Its lock is noted by now; prepared, it may go by another name.
    await session.query(`PREPARE TRANSACTION '${gid}'`);
    await session.end();
    await isHeldFor(mill, 1.6);
    expect(await handled.by("all")).toEqual([]);
    await database.pool.query(`COMMIT PREPARED '${gid}'`);
    await expectAllHandled(one);
    expect(await handled.by("all")).toEqual([1, 2]);
  });

  it("raises an alarm that names who holds it, among writers that are older", async () => {
    const one = await scene();
    const { database, mill, all, lines } = one;
    const other = await testDatabase({ migrated: false });
    for (const where of [other, other, other, database, database, database]) {
      await beginWriting(where);
    }
    await start(mill, all, { staleGapThreshold: 200 });
    const session = await database.session();
    const pid = await backendOf(session);
    await session.query("BEGIN");
    await mill.append(stream(1), paid, { tx: session });
    await mill.append(stream(2), paid);
    const alarm = await eventually(() => {
      const found = lines.find(({ message }) => message === "consumer gap became stale");
      if (found === undefined) throw new Error("no alarm");
      return found;
    });
    expect(alarm).toMatchObject({ level: "warn", fields: { position: "1" } });
    expect(alarm.fields["holders"]).toContainEqual(expect.objectContaining({ pid }));
    await session.query("COMMIT");
    await expectAllHandled(one);
  });

  it("can be passed by a person, for a reason that is kept", async () => {
    const one = await scene();
    const { database, mill, handled, all } = one;
    await start(mill, all);
    const stuck = await database.session();
    await stuck.query("BEGIN");
    await mill.append(stream(1), paid, { tx: stuck });
    const second = await mill.append(stream(2), paid);
    await isHeldFor(mill, 0.2);
    await mill.consumers.skip("all", { position: 1n, reason: "the host is gone" });
    await mill.waitFor(all, second, { timeoutMs: 5_000 });
    expect(await handled.by("all")).toEqual([2]);
    expect(await gapsIn(database)).toEqual([
      { consumer: "all", gap: 1, to: 1, how: "person", missing: 1, reason: "the host is gone" },
    ]);
    // Other gaps are still waited for, also behind the one that was passed.
    const open = await database.session();
    await open.query("BEGIN");
    await mill.append(stream(3), paid, { tx: open });
    await mill.append(stream(4), paid);
    await isHeldFor(mill, 0.3);
    expect(await handled.by("all")).toEqual([2]);
    await stuck.query("ROLLBACK");
    await open.query("COMMIT");
    await mill.waitFor(all, { position: 4n }, { timeoutMs: 10_000 });
    expect(await handled.by("all")).toEqual([2, 3, 4]);
  });
});

it("lets a worker that starts beside an open append go on from its checkpoints", async () => {
  const one = await scene();
  const { database, mill, handled, all } = one;
  const undone = await database.session();
  await undone.query("BEGIN");
  await mill.append(stream(1), paid, { tx: undone });
  await undone.query("ROLLBACK");
  const second = await mill.append(stream(2), paid);
  const first = await start(mill, all);
  await mill.waitFor(all, second);
  await first.stop();
  const third = await mill.append(stream(3), paid);
  const open = await database.session();
  await open.query("BEGIN");
  await mill.append(stream(4), paid, { tx: open });
  await mill.append(stream(5), paid);
  await start(mill, all);
  // The new process cannot prove yet that position 1 is dead, and need not.
  await mill.waitFor(all, third, { timeoutMs: 5_000 });
  await isHeldFor(mill, 0.3);
  expect(await handled.by("all")).toEqual([2, 3]);
  await open.query("COMMIT");
  await expectAllHandled(one);
});

describe("positions that never get an event", () => {
  it("are passed when savepoints and transactions roll back", async () => {
    const one = await scene();
    const { database, mill, handled, all } = one;
    await start(mill, all);
    const session = await database.session();
    await session.query("BEGIN");
    for (let round = 0; round < 70; round += 1) {
      await session.query("SAVEPOINT one"); // More than a backend keeps in shared memory.
      await mill.append(stream(`gone ${round}`), paid, { tx: session });
      await session.query(round % 7 === 0 ? "RELEASE one" : "ROLLBACK TO one");
    }
    await mill.append(stream("kept"), paid);
    await isHeldFor(mill, 0.2);
    expect(await handled.by("all")).toEqual([]);
    await session.query("COMMIT");
    await session.query("BEGIN");
    await mill.append(stream("gone"), paid, { tx: session });
    await session.query("ROLLBACK");
    await mill.append(stream("last"), paid);
    await expectAllHandled(one);
    expect(await handled.by("all")).toHaveLength(12);
    const gaps = await gapsIn(database);
    expect(gaps.reduce((sum, gap) => sum + gap.missing, 0)).toBe(61);
  });

  it.each(["this database", "another database"])(
    "are passed within two seconds though a transaction of %s stays open",
    async (where) => {
      const one = await scene();
      const { database, mill, all } = one;
      await start(mill, all);
      const other = await testDatabase({ migrated: false });
      const unrelated = await beginWriting(where === "this database" ? database : other);
      const undone = await database.session();
      await undone.query("BEGIN");
      await mill.append(stream(1), paid, { tx: undone });
      await undone.query("ROLLBACK");
      const appended = await mill.append(stream(2), paid);
      const since = performance.now();
      await mill.waitFor(all, appended, { timeoutMs: 10_000 });
      expect(performance.now() - since).toBeLessThan(2_500);
      expect(await gapsIn(database)).toMatchObject([{ gap: 1, how: "lockers", missing: 1 }]);
      await unrelated.query("ROLLBACK");
      await expectAllHandled(one);
    },
  );

  it("are passed by a worker that starts while a transaction stays open", async () => {
    const one = await scene();
    const { database, mill, all } = one;
    const undone = await database.session();
    for (const id of [1, 2, 3]) {
      await undone.query("BEGIN");
      await mill.append(stream(id), paid, { tx: undone });
      await undone.query("ROLLBACK");
      await mill.append(stream(id), paid);
    }
    const unrelated = await beginWriting(database);
    await start(mill, all);
    await expectAllHandled(one);
    await unrelated.query("ROLLBACK");
  });

  it("are told to the audit without naming one that exists", async () => {
    const one = await scene();
    const { database, mill, all } = one;
    await start(mill, all, { batchSize: 3 });
    const session = await database.session();
    for (let round = 0; round < 40; round += 1) {
      await session.query("BEGIN");
      await mill.append(stream(round), round % 3 === 0 ? [...paid, ...paid] : paid, {
        tx: session,
      });
      await session.query(round % 4 === 1 ? "ROLLBACK" : "COMMIT");
    }
    await mill.append(stream("last"), paid);
    await expectAllHandled(one);
    const gaps = await gapsIn(database);
    const missing = gaps.reduce((sum, gap) => sum + gap.missing, 0);
    const drawn = (await positionsIn(database)).at(-1) ?? 0;
    expect(missing).toBe(drawn - (await positionsIn(database)).length);
  });
});

it("moves a scoped consumer over events that do not concern it", async () => {
  const { database, mill, handled } = await scene();
  const orders = handled.consumer("orders", { aggregateTypes: ["Order"] });
  const cancelled = handled.consumer("cancelled", { eventTypes: ["Cancelled"] });
  await mill.startWorker({ ...FAST, batchSize: 2, consumers: [orders, cancelled] });
  for (let id = 0; id < 9; id += 1) await mill.append({ type: "Account", id: `${id}` }, paid);
  const order = await mill.append(stream(1), paid);
  const account = await mill.append({ type: "Account", id: "last" }, paid);
  await mill.waitFor(orders, account);
  await mill.waitFor(cancelled, account);
  expect(await handled.by("orders")).toEqual([Number(order.position)]);
  expect(await handled.by("cancelled")).toEqual([]);
  expect(await falseGapsIn(database)).toEqual([]);
});

it("hands a consumer that begins far behind the frontier every event, read by read", async () => {
  const one = await scene();
  // The first read asks for a hundred, because nobody knows yet how large they are.
  const many = Array.from({ length: 60 }, () => ({ type: "Paid" }));
  for (let id = 0; id < 3; id += 1) await one.mill.append(stream(id), many);
  await start(one.mill, one.all);
  await expectAllHandled(one);
});
