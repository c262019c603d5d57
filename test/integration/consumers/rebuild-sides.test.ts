import { expect, it } from "vitest";
import { eventually } from "../../support/eventually.ts";
import { STEADY, statusOf } from "./handled.ts";
import {
  appendOrders,
  builtScene,
  eventuallyBuilt,
  once,
  orderView,
  project,
  rebuildScene,
  schemasOf,
  sumsOf,
  VIEW,
} from "./rebuild-scene.ts";

it("finds planted differences and shows them, and the same is the same", async () => {
  const { database, mill } = await builtScene();
  const { rebuilds } = mill.consumers;
  await rebuilds.start(VIEW);
  await eventuallyBuilt(mill);
  expect(await rebuilds.compare(VIEW)).toMatchObject({
    position: 60n,
    isSame: true,
    tables: [{ table: "public.order_view", liveRows: 10 }, { table: "public.order_lines" }],
  });
  await database.pool.query(
    `UPDATE order_view SET cents = 4711 WHERE id = 'order-3';
     UPDATE order_lines SET line = 1000000;
     DELETE FROM order_lines WHERE position = 7;
     INSERT INTO order_view VALUES ('order-99', 'nobody', 5, 1)`,
  );
  const { isSame, tables } = await rebuilds.compare(VIEW);
  expect(isSame).toBe(false);
  const [view, lines] = tables;
  expect(view).toMatchObject({ liveRows: 11, rebuiltRows: 10 });
  expect(view).toMatchObject({ missing: 1, extra: 0, different: 1 });
  expect(lines).toMatchObject({ missing: 0, extra: 1, different: 0 });
  const kinds = Object.fromEntries(view?.examples.map((one) => [one.kind, one]) ?? []);
  expect(kinds["different"]?.key).toBe('["order-3"]');
  expect(kinds["different"]?.live).toContain('"cents": 4711');
  expect(kinds["different"]?.rebuilt).toContain('"cents": 6');
  expect(kinds["missing"]).toMatchObject({ key: '["order-99"]', rebuilt: undefined });
  expect(lines?.examples).toMatchObject([{ kind: "extra", key: "[7]", live: undefined }]);

  const ignored = await rebuilds.compare(VIEW, { ignore: ["cents"] });
  expect(ignored.tables[0]).toMatchObject({ missing: 1, different: 0 });
  const sampled = await rebuilds.compare(VIEW, { rowsMax: 5 });
  expect(sampled.tables.map((one) => one.compared)).toEqual(["sample", "sample"]);
  await expect(rebuilds.compare(VIEW, { rowsMax: 0 })).rejects.toThrow("rowsMax must be");
  const typo = { ignored: [] } as object;
  await expect(rebuilds.compare(VIEW, typo)).rejects.toThrow('unknown compare option "ignored"');

  // Nobody is held behind, and what was planted goes with the swap.
  const last = await appendOrders(mill, 10);
  await mill.waitFor(VIEW, { position: last });
  await rebuilds.swap(VIEW);
  expect(await sumsOf(database)).toEqual(once(70));
});

it("is refused while the projection is stopped before the rebuild, a swap is not", async () => {
  const { database, mill } = await builtScene();
  const { rebuilds } = mill.consumers;
  await rebuilds.start(VIEW);
  await eventuallyBuilt(mill);
  await mill.consumers.pause(VIEW);
  await appendOrders(mill, 10);
  await eventuallyBuilt(mill);
  await expect(rebuilds.compare(VIEW)).rejects.toMatchObject({
    code: "TM_CONFLICT",
    message:
      `${VIEW} is at 60 and paused, not at 70: ` +
      "there is no position at which both sides can be compared",
  });
  expect(await rebuilds.swap(VIEW)).toBe(70n);
  expect(await sumsOf(database)).toEqual(once(70));
  expect(await statusOf(mill, VIEW)).toMatchObject({ checkpoint: 70n, state: "paused" });
  await appendOrders(mill, 10);
  await rebuilds.rollBack(VIEW);
  expect(await sumsOf(database)).toEqual(once(60));
  await mill.consumers.resume(VIEW);
  await mill.waitFor(VIEW, { position: 80n });
  expect(await sumsOf(database)).toEqual(once(80));
});

it("a rebuild that is cancelled leaves nothing behind", async () => {
  const { database, mill } = await builtScene();
  const { pool } = database;
  const left = async (): Promise<unknown> => {
    const { rows } = await pool.query(
      `SELECT (SELECT array_agg(consumer_name) FROM tidemill.consumer_checkpoints) AS a,
              (SELECT array_agg(consumer_name) FROM tidemill.consumer_assignments) AS b,
              (SELECT array_agg(consumer_name) FROM tidemill.consumer_partitions) AS c,
              (SELECT count(*) FROM tidemill.consumer_rebuilds) AS d,
              (SELECT count(*) FROM tidemill.consumer_holds) AS e,
              (SELECT count(*) FROM tidemill.consumer_states) AS f,
              (SELECT count(*) FROM pg_class WHERE relname LIKE 'order%') AS g`,
    );
    return [rows, await schemasOf(database)];
  };
  const before = await left();
  for (let id = 1; id <= 2; id += 1) {
    await mill.consumers.rebuilds.start(VIEW, { partitions: 2 });
    if (id === 2) await mill.consumers.pause(`${VIEW}~rebuild`);
    else await eventuallyBuilt(mill);
    await mill.consumers.rebuilds.cancel(VIEW);
    expect(await left()).toEqual(before);
  }
  expect(await sumsOf(database)).toEqual(once(60));
});

it("what was parked stays with the tables that it was parked for", async () => {
  const { database, mill } = await rebuildScene();
  const { rebuilds } = mill.consumers;
  let isPoisonous = true;
  const view = orderView(
    async (event, context) => {
      if (isPoisonous && event.streamId === "order-3") throw new Error("cannot digest this");
      await project(event, context);
    },
    { onFailure: "park" },
  );
  await mill.startWorker({ ...STEADY, maxConsecutiveFailures: 1, consumers: [view] });
  await mill.waitFor(VIEW, { position: await appendOrders(mill, 20) });
  expect(await statusOf(mill, VIEW)).toMatchObject({ parkedStreams: 1, parkedEvents: 2 });
  // A rebuild parks nothing: it stops.
  await rebuilds.start(VIEW);
  await eventually(async () => {
    const { progress } = await rebuilds.status(VIEW);
    expect(progress).toMatchObject({ stopped: "quarantined", error: "cannot digest this" });
  });
  isPoisonous = false;
  await mill.consumers.resume(`${VIEW}~rebuild`);
  await eventuallyBuilt(mill);
  await rebuilds.swap(VIEW);
  expect(await statusOf(mill, VIEW)).toMatchObject({ parkedStreams: 0, parkedEvents: 0 });
  await mill.consumers.resume(VIEW);
  await mill.waitFor(VIEW, { position: await appendOrders(mill, 10) });
  expect(await sumsOf(database)).toEqual(once(30));

  await rebuilds.rollBack(VIEW);
  await mill.waitFor(VIEW, { position: 30n });
  expect(await statusOf(mill, VIEW)).toMatchObject({ parkedStreams: 1, parkedEvents: 3 });
  expect(await sumsOf(database)).toEqual(once(27));
  await mill.consumers.resume(VIEW);
  await eventually(async () => expect(await sumsOf(database)).toEqual(once(30)));
});

it("a swap waits for a reader a little at a time, and lets others by", async () => {
  const { database, mill } = await builtScene(20);
  await mill.consumers.rebuilds.start(VIEW);
  await eventuallyBuilt(mill);
  const reader = await database.session();
  await reader.query("BEGIN; SELECT FROM order_view");
  const swapping = mill.consumers.rebuilds.swap(VIEW);
  await eventually(async () => {
    const { rows } = await database.pool.query(
      `SELECT FROM pg_locks AS one JOIN pg_database AS base ON base.oid = one.database
        WHERE base.datname = current_database()
          AND NOT one.granted AND one.mode = 'AccessExclusiveLock'`,
    );
    expect(rows).toHaveLength(1);
  });
  expect(await sumsOf(database)).toEqual(once(20)); // Behind the swap in line, and soon by.
  await reader.query("COMMIT");
  expect(await swapping).toBe(20n);
  expect(await schemasOf(database)).toEqual(["tidemill_before_1"]);
});
