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

it("a draining worker renews and stays known until its last handler has ended", async () => {
  const database = await testDatabase();
  const mill = await database.connect();
  await database.pool.query(`
    CREATE TABLE happened (n serial, what text);
    CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
      $$ BEGIN INSERT INTO happened (what) VALUES (TG_ARGV[0]); RETURN NULL; END $$;
    CREATE TRIGGER note AFTER INSERT ON tidemill.task_history
      FOR EACH ROW EXECUTE FUNCTION note('task ended');
    CREATE TRIGGER note AFTER DELETE ON tidemill.worker_nodes
      FOR EACH ROW EXECUTE FUNCTION note('worker gone')`);
  const [began, mayEnd] = [gate(), gate()];
  const worker = await mill.startWorker({
    ...BRISK,
    leaseSeconds: 3,
    drainTimeout: 60_000,
    handlers: [
      mails.handle(async () => {
        began.open();
        await mayEnd.opened;
      }),
    ],
  });
  const { id } = await mill.enqueue(mails, 1);
  await began.opened;
  const stopping = worker.stop();
  const leaseEnd = async (): Promise<number> =>
    (await mill.tasks.get(id))?.leaseUntil?.getTime() ?? 0;
  let before = await leaseEnd();
  // Longer than the lease was when the stop began: nobody may think that it died.
  for (const _ of [1, 2, 3, 4]) {
    before = await eventually(async () => {
      const until = await leaseEnd();
      expect(until).toBeGreaterThan(before);
      return until;
    });
    expect((await mill.status()).workers).toMatchObject([{ id: worker.id, status: "draining" }]);
  }
  mayEnd.open();
  expect(await stopping).toEqual({ givenBack: 0 });
  expect(await readColumn(database, "SELECT what FROM happened ORDER BY n")).toEqual([
    "task ended",
    "worker gone",
  ]);
});
