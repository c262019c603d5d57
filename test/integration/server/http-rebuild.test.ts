import { expect, it } from "vitest";
import { eventually } from "../../support/eventually.ts";
import { STEADY } from "../consumers/handled.ts";
import { appendOrders, orderView, TABLES, VIEW } from "../consumers/rebuild-scene.ts";
import { openScene, type Reply, type Who } from "./http-scene.ts";

it("an admin rebuilds a projection, compares, swaps, rolls back and cancels", async () => {
  const { database, mill, call } = await openScene({ until: "test" });
  await database.pool.query(TABLES);
  await mill.startWorker({ ...STEADY, consumers: [orderView()] });
  await mill.waitFor(VIEW, { position: await appendOrders(mill, 20) });
  const act = (move: string, json?: unknown, as: Who = "admin"): Promise<Reply> =>
    call("POST", `/v1/consumers/${VIEW}/rebuild${move}`, { as, json });
  const look = (as: Who = "admin"): Promise<Reply> =>
    call("GET", `/v1/consumers/${VIEW}/rebuild`, { as });

  expect((await look()).status).toBe(404);
  const listed = (): Promise<Reply> => call("GET", "/v1/rebuilds", { as: "admin" });
  expect((await listed()).body["projections"]).toEqual([
    { consumer: VIEW, tables: ["order_view", "public.order_lines"] },
  ]);
  expect((await act("", {}, "producer")).status).toBe(403);
  expect((await act("", { partitions: 0 })).status).toBe(400);
  expect((await act("", { partition: 2 })).status).toBe(400);
  const started = await act("", { partitions: 2, reason: "VAT" });
  expect(started.status).toBe(201);
  expect(started.body).toMatchObject({
    consumer: VIEW,
    state: "building",
    reason: "VAT",
    tables: ["public.order_view", "public.order_lines"],
    schema: "tidemill_rebuild_1",
  });
  expect((await listed()).body["projections"]).toMatchObject([{ rebuild: { state: "building" } }]);
  const again = await act("");
  expect(again.status).toBe(409);
  expect(again.body["detail"]).toBe(
    `consumer ${VIEW} has a rebuild already; cancel it, or forget what it keeps`,
  );
  expect((await act("/pause", { reason: "lunch" })).body["progress"]).toMatchObject({
    stopped: "paused",
  });
  expect((await act("/resume")).status).toBe(200);
  await eventually(async () => {
    expect((await look()).body["progress"]).toMatchObject({ position: "20", head: "20", share: 1 });
  });
  expect((await look("producer")).status).toBe(403);
  expect((await act("/rollback")).status).toBe(409);
  const compared = await act("/compare", { ignore: ["customer"] });
  expect(compared.body).toMatchObject({ position: "20", isSame: true });
  expect((await act("/swap")).body).toMatchObject({ state: "swapped", partitions: [] });
  expect((await act("/rollback")).body).toMatchObject({ state: "rolled_back" });
  expect((await act("/cancel")).status).toBe(204);
  expect((await act("/forget")).status).toBe(404);
});
