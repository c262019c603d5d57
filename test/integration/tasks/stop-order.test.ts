import { expect, it } from "vitest";
import { consumer, queue } from "../../../src/index.ts";
import { testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { BRISK, gate, readColumn } from "./scene.ts";

const mails = queue("mails");

it("a worker that stops fetches no task while its batches drain, and leaves last", async () => {
  const database = await testDatabase();
  const mill = await database.connect();
  const [began, mayEnd] = [gate(), gate()];
  const slow = consumer("slow_v1", {
    async handle() {
      began.open();
      await mayEnd.opened;
    },
  });
  const worker = await mill.startWorker({
    ...BRISK,
    drainTimeout: 20_000,
    consumers: [slow],
    handlers: [mails.handle(() => {})],
  });
  await (await mill.enqueue(mails, 1)).result(); // It claims tasks.
  await mill.append({ type: "Order", id: "1" }, [{ type: "Placed" }]);
  await began.opened;
  const stopping = worker.stop();
  await eventually(async () => {
    expect((await mill.status()).workers).toMatchObject([{ status: "draining" }]);
  });
  const { id } = await mill.enqueue(mails, 2);
  // Another worker takes it at once: this one, which is nearer, has left it alone.
  const other = await mill.startWorker({ ...BRISK, handlers: [mails.handle(() => {})] });
  await eventually(async () => {
    expect(await mill.tasks.get(id)).toMatchObject({ state: "completed", workerId: other.id });
  });
  expect((await mill.status()).workers).toMatchObject(
    expect.arrayContaining([expect.objectContaining({ id: worker.id, status: "draining" })]),
  );
  mayEnd.open();
  expect(await stopping).toEqual({ givenBack: 0 });
  expect(await readColumn(database, "SELECT worker_id::text FROM tidemill.worker_nodes")).toEqual([
    other.id,
  ]);
});

it("what a stop had to interrupt is told: tasks and batches alike", async () => {
  const database = await testDatabase();
  const mill = await database.connect();
  const running = gate();
  const endless = new Promise<void>(() => {});
  const worker = await mill.startWorker({
    ...BRISK,
    drainTimeout: 100,
    consumers: [consumer("stuck_v1", { handle: () => endless })],
    handlers: [
      mails.handle(() => {
        running.open();
        return endless;
      }),
    ],
  });
  await mill.append({ type: "Order", id: "1" }, [{ type: "Placed" }]);
  const { id } = await mill.enqueue(mails, 1);
  await running.opened;
  await eventually(() => expect(worker.assigned).toEqual(["stuck_v1"]));
  const { givenBack } = await worker.stop();
  expect(givenBack).toBe(2);
  expect(await mill.tasks.get(id)).toMatchObject({ state: "pending", attempt: 0 });
});
