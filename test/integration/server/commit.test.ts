import { describe, expect, it } from "vitest";
import { testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { startSilentProxy } from "../../support/silent-proxy.ts";
import { status } from "../../support/stream-client.ts";
import { readColumn } from "../tasks/scene.ts";
import {
  ACME,
  acks,
  codeqAcks,
  codeqBatch,
  codeqCreate,
  codeqHello,
  committing,
  create,
  GLOBEX,
  hello,
  PRODUCER,
  type Scene,
  scene,
  waitInCommit,
} from "./scene.ts";

const refuseBadTasks = `
  CREATE FUNCTION refuse_bad() RETURNS trigger LANGUAGE plpgsql AS
  $$ BEGIN RAISE EXCEPTION 'secret words' USING ERRCODE = '22023'; END $$;
  CREATE TRIGGER refuses BEFORE INSERT ON tidemill.tasks
    FOR EACH ROW WHEN (NEW.payload = '"bad"') EXECUTE FUNCTION refuse_bad()`;

const payloads = async ({ database }: Pick<Scene, "database">): Promise<unknown[]> =>
  await readColumn(database, "SELECT payload FROM tidemill.live_tasks ORDER BY id");

describe("a commit that is not answered", () => {
  it("ends the stream without an ack, and a repetition finds that nothing was stored", async () => {
    const { database, tidemill, codeq } = await scene();
    await waitInCommit(database);
    const lock = await database.session();
    const streams = [
      await hello(tidemill(), { producerId: PRODUCER }),
      await codeqHello(codeq(), GLOBEX),
    ] as const;
    await lock.query("SELECT pg_advisory_lock(42)");
    create(streams[0], 1n, [{}, {}]);
    const pid = await committing(database);
    codeqCreate(streams[1], { seq: 1n });
    await database.pool.query("SELECT pg_terminate_backend($1)", [pid]);
    const ended = await streams[0].ended;
    expect(ended.code).toBe(status.UNAVAILABLE);
    expect(ended.details).toMatch(/^it is not known whether creates without an answer were stored/);
    expect(acks(streams[0])).toEqual(new Map());
    await lock.query("SELECT pg_advisory_unlock(42)");
    // Somebody else's create was not in that transaction.
    await streams[1].until(2);
    expect(codeqAcks(streams[1])).toMatchObject([{ ok: true }]);
    const again = await hello(tidemill(), { producerId: PRODUCER });
    create(again, 1n, [{}, {}]);
    await again.until(2);
    expect(acks(again).get(1n)).toHaveLength(2);
    expect(await payloads({ database })).toHaveLength(3);
  });

  it("ends the stream without an ack, and a repetition finds what was stored", async () => {
    const database = await testDatabase();
    const proxy = await startSilentProxy(database.url);
    const { codeq } = await scene({
      database,
      databaseUrl: proxy.url,
      connect: { queryTimeout: 2_500 },
    });
    await waitInCommit(database);
    const stream = await codeqHello(codeq());
    codeqCreate(stream, { seq: 1n, idempotencyKey: "k0" });
    await stream.until(2);
    const lock = await database.session();
    await lock.query("SELECT pg_advisory_lock(42)");
    codeqBatch(stream, [
      { seq: 2n, idempotencyKey: "k1" },
      { seq: 3n, idempotencyKey: "k2" },
    ]);
    await committing(database);
    proxy.swallow("answers");
    await lock.query("SELECT pg_advisory_unlock(42)");
    expect((await stream.ended).code).toBe(status.UNAVAILABLE);
    expect(codeqAcks(stream)).toHaveLength(1);
    const ids = await readColumn(
      database,
      "SELECT id::text FROM tidemill.live_tasks AS task ORDER BY task.id",
    );
    expect(ids).toHaveLength(3);
    proxy.mend();
    const again = await codeqHello(codeq());
    codeqBatch(again, [
      { seq: 2n, idempotencyKey: "k1" },
      { seq: 3n, idempotencyKey: "k2" },
      { seq: 4n, idempotencyKey: "k3" },
    ]);
    await again.until(2);
    const acked = codeqAcks(again).map(({ ok, taskId }) => ok && taskId);
    expect(acked.slice(0, 2)).toEqual(ids.slice(1));
    expect(await payloads({ database })).toHaveLength(4);
  });
});

describe("what the database refuses", () => {
  it("is refused alone, without its words, and everything else is stored", async () => {
    const { database, tidemill, codeq, logs } = await scene();
    await database.pool.query(refuseBadTasks);
    const good = await codeqHello(codeq(), GLOBEX);
    const bad = await hello(tidemill(), { token: ACME });
    const json = (value: unknown): Buffer => Buffer.from(JSON.stringify(value));
    for (let seq = 0n; seq < 40n; seq += 1n) {
      codeqCreate(good, { seq, payload: json("good") });
      create(bad, seq, [{ payload: json("fine") }, { payload: json("bad"), kind: "x" }]);
    }
    create(bad, 40n, [{ payload: json("fine") }, { payload: json("bad"), kind: "x" }], true);
    await good.until(41);
    await bad.until(42);
    expect(codeqAcks(good).every(({ ok }) => ok)).toBe(true);
    for (let seq = 0n; seq < 40n; seq += 1n) {
      expect(acks(bad).get(seq)).toEqual([expect.stringMatching(/^\d+$/), "TM_INVALID_INPUT"]);
    }
    expect(JSON.stringify(bad.received, (_, value: unknown) => String(value))).not.toContain(
      "words",
    );
    expect(bad.received.at(-1)?.message).toMatchObject({ $case: "refused" });
    const kept = await payloads({ database });
    expect(kept.filter((one) => one === '"fine"')).toHaveLength(40);
    expect(kept.filter((one) => one === '"good"')).toHaveLength(40);
    const reasons = logs.filter(({ message }) => message === "the database refused a create");
    expect(reasons).toHaveLength(41);
    expect(reasons[0]?.fields).toMatchObject({
      tenant: "acme",
      queue: "mails",
      error: expect.stringContaining("secret words"),
    });
  });

  it("because somebody holds a key delays others by a moment only", async () => {
    const { database, mill, codeq } = await scene();
    const stream = await codeqHello(codeq());
    const other = await codeqHello(codeq(), GLOBEX);
    codeqCreate(stream, { seq: 1n });
    await stream.until(2);
    const session = await database.session();
    await session.query("BEGIN");
    const tx = { query: (text: string, values?: unknown[]) => session.query(text, values) };
    await mill.enqueue("mails", {}, { tx, idempotencyKey: "held", tenant: "acme" });
    codeqCreate(stream, { seq: 2n, idempotencyKey: "held" });
    codeqCreate(stream, { seq: 3n });
    codeqCreate(other, { seq: 4n });
    await stream.until(4);
    await other.until(2);
    expect(codeqAcks(stream).map(({ seq, ok, errorMessage }) => [seq, ok, errorMessage])).toEqual([
      [1n, true, ""],
      [2n, false, "the server cannot do this now; try again"],
      [3n, true, ""],
    ]);
    expect(codeqAcks(other)).toMatchObject([{ ok: true }]);
    await session.query("ROLLBACK");
    codeqCreate(stream, { seq: 5n, idempotencyKey: "held" });
    await stream.until(5);
    expect(codeqAcks(stream).at(-1)).toMatchObject({ seq: 5n, ok: true });
  });

  it("because it is away is told at once to all, and is nobody's fault", async () => {
    const { database, codeq, logs } = await scene();
    const stream = await codeqHello(codeq());
    codeqCreate(stream, { seq: 1n });
    await stream.until(2);
    const session = await database.session();
    await session.query("BEGIN; LOCK TABLE tidemill.task_tally IN EXCLUSIVE MODE");
    codeqBatch(
      stream,
      Array.from({ length: 1_000 }, (_, n) => ({ seq: BigInt(n) })),
    );
    const pid = await eventually(async () => {
      const { rows } = await session.query<{ pid: number }>(
        `SELECT pid FROM pg_stat_activity
          WHERE datname = current_database() AND wait_event_type = 'Lock'`,
      );
      expect(rows).toHaveLength(1);
      return rows[0]?.pid;
    });
    await session.query("SELECT pg_terminate_backend($1)", [pid]);
    await session.query("ROLLBACK");
    await stream.until(3);
    const told = codeqAcks(stream).slice(1);
    expect(told).toHaveLength(1_000);
    expect(
      new Set(told.map(({ ok, taskId, errorMessage }) => `${ok} ${taskId} ${errorMessage}`)),
    ).toEqual(new Set(["false  the server cannot do this now; try again"]));
    expect(logs.filter(({ message }) => message === "creates were not stored")).toHaveLength(1);
    expect(await payloads({ database })).toHaveLength(1);
    codeqCreate(stream, { seq: 1n });
    await stream.until(4);
    expect(codeqAcks(stream).at(-1)).toMatchObject({ ok: true });
  });
});

describe("a flood of one tenant", () => {
  it("delays a create of another by little", async () => {
    const { codeq, server } = await scene();
    const other = await codeqHello(codeq(), GLOBEX);
    const floods = await Promise.all(Array.from({ length: 4 }, () => codeqHello(codeq())));
    const payload = Buffer.from(JSON.stringify("x".repeat(400_000)));
    const total = 6;
    for (const flood of floods) {
      for (let n = 0; n < total; n += 1) {
        codeqBatch(
          flood,
          Array.from({ length: 4 }, () => ({ seq: BigInt(n), payload })),
        );
      }
    }
    await floods[0]?.until(2);
    codeqCreate(other, { seq: 1n });
    await other.until(2);
    const before = floods.flatMap(codeqAcks).length;
    expect(codeqAcks(other)).toMatchObject([{ ok: true }]);
    expect(before).toBeLessThan((floods.length * total * 4) / 2);
    expect(server.metrics.createBytes.value()).toBeLessThan(64 * 1024 * 1024);
    for (const flood of floods) await flood.until(total + 1);
    expect(floods.flatMap(codeqAcks).every(({ ok }) => ok)).toBe(true);
  });
});
