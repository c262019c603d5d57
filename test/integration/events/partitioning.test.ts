import { describe, expect, it } from "vitest";
import { consumer, Tidemill } from "../../../src/index.ts";
import { type TestDatabase, testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { STEADY } from "../consumers/handled.ts";
import { appendMany, PARTITIONING, partitionsOf } from "./partitioned-log.ts";

const order = { type: "Order", id: "1" };

async function partitioned(): Promise<{ database: TestDatabase; mill: Tidemill }> {
  const database = await testDatabase({ migrated: false });
  await Tidemill.migrate(database.url, { partitioning: PARTITIONING });
  return { database, mill: await database.connect() };
}

const insertInto = (table: string): string =>
  `INSERT INTO tidemill.${table}
          (stream_type, stream_id, stream_version, event_id, event_type, payload, trace_id)
   VALUES ($1, $2, $3, $4, 'Direct', '', pg_current_xact_id_if_assigned()::text)
   RETURNING global_position, trace_id AS xid_before_values`;

describe("a log in partitions", () => {
  it("begins with as many as were asked for, named as the source names them", async () => {
    const { database } = await partitioned();
    expect(await partitionsOf(database.pool)).toEqual([
      "events_p0000000001_p0000000101",
      "events_p0000000101_p0000000201",
    ]);
  });

  it("takes appends across their boundaries, and reads back in order", async () => {
    const { mill, database } = await partitioned();
    const events = Array.from({ length: 150 }, (_, index) => ({ type: "Step", data: index }));
    const { positions } = await mill.append(order, events);
    expect(positions).toEqual(Array.from({ length: 150 }, (_, index) => BigInt(index + 1)));
    const read = await mill.readStream(order);
    expect(read.map((event) => event.data)).toEqual(events.map((event) => event.data));
    expect((await mill.readAll({ after: 98, limit: 4 })).map((event) => event.position)).toEqual([
      99n,
      100n,
      101n,
      102n,
    ]);
    expect(await mill.latestPosition()).toBe(150n);
    const { rows } = await database.pool.query(
      "SELECT count(*)::int AS count FROM tidemill.events GROUP BY tableoid ORDER BY tableoid",
    );
    expect(rows).toEqual([{ count: 100 }, { count: 50 }]);
  });

  it("refuses an append beyond the last one whole", async () => {
    const { mill } = await partitioned();
    await appendMany(mill, 190);
    const events = Array.from({ length: 20 }, () => ({ type: "Step" }));
    await expect(mill.append(order, events)).rejects.toThrow(/no partition for the next position/);
    expect(await mill.latestPosition()).toBe(190n);
  });

  it("grows ahead of the log while a worker runs, and consumers read across", async () => {
    const { database, mill } = await partitioned();
    const handled: bigint[] = [];
    const seen = consumer("seen", {
      handle: (event) => {
        handled.push(event.position);
      },
    });
    for (let round = 0; round < 4; round += 1) {
      await appendMany(mill, 150);
      // Becoming leader is when a worker first looks for partitions to make.
      await using worker = await mill.startWorker({ consumers: [seen], ...STEADY });
      const last = await mill.latestPosition();
      await mill.waitFor(seen, { position: last });
      await eventually(async () => {
        expect(worker.isLeader).toBe(true);
        const end = Number((await partitionsOf(database.pool)).at(-1)?.slice(-10));
        expect(end).toBeGreaterThan(Number(last) + PARTITIONING.size * PARTITIONING.ahead);
      });
    }
    expect(handled).toEqual(Array.from({ length: 600 }, (_, index) => BigInt(index + 1)));
    const names = await partitionsOf(database.pool);
    expect(new Set(names).size).toBe(names.length);
    expect(names.at(-1)).toBe("events_p0000000701_p0000000801");
  });

  it("keeps event ids unique across partitions", async () => {
    const { mill } = await partitioned();
    const id = "0197a3f0-0000-7000-8000-000000000001";
    await mill.append(order, [{ type: "Step", id }]);
    await appendMany(mill, 110);
    const again = mill.append({ type: "Refund", id: "1" }, [{ type: "Step", id }]);
    await expect(again).rejects.toMatchObject({ code: "TM_DUPLICATE_EVENT" });
    await expect(again).rejects.toThrow("an event with this id is already in the log");
  });

  it("keeps stream versions unique across partitions, for every writer", async () => {
    const { database, mill } = await partitioned();
    await mill.append(order, [{ type: "Step" }]);
    await appendMany(mill, 110);
    for (const table of ["events", "events_p0000000101_p0000000201"]) {
      const id = "0197a3f0-0000-7000-8000-000000000002";
      const foreign = database.pool.query(insertInto(table), ["Order", "1", 1, id]);
      await expect(foreign).rejects.toMatchObject({ code: "23505" });
    }
  });

  it("draws the transaction id before the position, also in a leaf", async () => {
    const { database, mill } = await partitioned();
    const leaf = "events_p0000000001_p0000000101";
    const insert = async (version: number) => {
      const id = `0197a3f0-0000-7000-8000-${String(version).padStart(12, "0")}`;
      const values = ["Direct", "1", version, id];
      return (await database.pool.query<{ xid_before_values: string }>(insertInto(leaf), values))
        .rows[0]?.xid_before_values;
    };
    // The first position of all draws a transaction id in any case: the sequence logs it.
    await mill.append(order, [{ type: "Step" }]);
    expect(await insert(1)).toMatch(/^\d+$/);
    // What the trigger is for: without it, values are computed before there is a transaction id.
    await database.pool.query(
      `ALTER TABLE tidemill.${leaf} DISABLE TRIGGER tidemill_draw_xid_first`,
    );
    // The first value after a checkpoint is logged and draws one as well: such a try says nothing.
    let version = 1;
    await eventually(async () => {
      version += 1;
      expect(await insert(version)).toBeNull();
    });
    expect(await mill.readStream({ type: "Direct", id: "1" })).toHaveLength(version);
  });

  it("is refused when a leaf lacks the trigger", async () => {
    const { database } = await partitioned();
    await database.pool.query(
      "DROP TRIGGER tidemill_draw_xid_first ON tidemill.events_p0000000101_p0000000201",
    );
    await expect(database.connect()).rejects.toMatchObject({ code: "TM_SCHEMA" });
  });

  it("has the trigger on every leaf that a worker made", async () => {
    const { database, mill } = await partitioned();
    await appendMany(mill, 100);
    const idle = consumer("idle", { handle: () => {} });
    await mill.runToHead({ consumers: [idle], ...STEADY });
    const { rows } = await database.pool.query(
      `SELECT relid::regclass::text FROM pg_partition_tree('tidemill.events')
        WHERE NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = relid
                             AND tgname = 'tidemill_draw_xid_first')`,
    );
    expect(rows).toEqual([]);
    await expect(database.connect()).resolves.toBeInstanceOf(Tidemill);
  });

  it("stays as it was made when a later migration asks for something else", async () => {
    const { database, mill } = await partitioned();
    const { applied } = await Tidemill.migrate(database.url);
    expect(applied).toEqual([]);
    await mill.append(order, [{ type: "Step" }]);
    expect(await partitionsOf(database.pool)).toHaveLength(2);
  });

  it("crosses the hole of a rolled-back append that spans two partitions", async () => {
    const { mill } = await partitioned();
    await appendMany(mill, 90);
    const undone = mill.transaction(async (tx) => {
      const events = Array.from({ length: 20 }, () => ({ type: "Step" }));
      await mill.append(order, events, { tx });
      throw new Error("undone");
    });
    await expect(undone).rejects.toThrow("undone");
    await appendMany(mill, 10);
    const handled: bigint[] = [];
    const seen = consumer("seen", { handle: (event) => void handled.push(event.position) });
    expect(await mill.runToHead({ consumers: [seen], ...STEADY })).toBe(120n);
    expect(handled).toHaveLength(100);
    expect(handled.at(-1)).toBe(120n);
  });
});
