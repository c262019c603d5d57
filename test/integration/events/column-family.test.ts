import { expect, it } from "vitest";
import { consumer, Tidemill } from "../../../src/index.ts";
import { testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { STEADY } from "../consumers/handled.ts";

const order = { type: "Order", id: "1" };

it.each([
  ["stream", "none", "stream_heads"],
  ["aggregate", "none", "aggregate_heads"],
  ["stream", "native", "stream_heads"],
  ["aggregate", "native", "aggregate_heads"],
] as const)("works on %s columns with partitioning %s", async (columnFamily, strategy, heads) => {
  const database = await testDatabase({ migrated: false });
  const names = { columnFamily, schema: "log", tables: { events: "facts.all-events" } };
  await Tidemill.migrate(database.url, { ...names, partitioning: { strategy } });
  const mill = await database.connect(names);
  const id = "0197a3f0-0000-7000-8000-000000000001";
  await mill.append(order, [{ type: "OrderPaid", data: 1, id }, { type: "OrderSent" }]);
  await mill.append(order, [{ type: "OrderDone" }], { expectedVersion: 2 });
  await expect(mill.append(order, [{ type: "x" }], { expectedVersion: 2 })).rejects.toMatchObject({
    actual: 3n,
  });
  await expect(mill.append(order, [{ type: "x", id }])).rejects.toThrow("with this id");

  const events = await mill.readStream(order, { fromVersion: 1, toVersion: 2 });
  expect(events.map((event) => event.type)).toEqual(["OrderPaid", "OrderSent"]);
  const { rows } = await database.pool.query(
    `SELECT ${columnFamily}_type AS type, ${columnFamily}_id AS id,
            ${columnFamily}_version AS version
       FROM log.${heads}`,
  );
  expect(rows).toEqual([{ type: "Order", id: "1", version: "3" }]);

  await database.pool.query("CREATE TABLE handled (n SERIAL, what TEXT)");
  const handled = async (): Promise<string[]> =>
    (await database.pool.query<{ what: string }>("SELECT what FROM handled ORDER BY n")).rows.map(
      (row) => row.what,
    );
  let isBad = true;
  const seen = consumer("seen", {
    onFailure: "park",
    handle: async (event, { tx }) => {
      if (isBad && event.type === "OrderSent") throw new Error("bad");
      const what = `${event.streamType}/${event.streamId}@${event.streamVersion} ${event.type}`;
      await tx.query("INSERT INTO handled (what) VALUES ($1)", [what]);
    },
  });
  const options = { consumers: [seen], ...STEADY, maxConsecutiveFailures: 1 };
  await mill.runToHead(options);
  expect(await handled()).toEqual(["Order/1@1 OrderPaid"]);
  isBad = false;
  await mill.consumers.resume("seen");
  await mill.append(order, [{ type: "OrderPraised" }]);
  await mill.runToHead(options);
  await eventually(async () => {
    expect((await handled()).slice(1)).toEqual([
      "Order/1@2 OrderSent",
      "Order/1@3 OrderDone",
      "Order/1@4 OrderPraised",
    ]);
  });
});

it("refuses to read a log whose columns are spelled otherwise", async () => {
  const database = await testDatabase({ migrated: false });
  await Tidemill.migrate(database.url, { columnFamily: "aggregate" });
  await expect(database.connect()).rejects.toMatchObject({ code: "TM_SCHEMA" });
});
