import { describe, expect, it } from "vitest";
import { appendEvents, createHandled, readHandled, readWorkerIds } from "../../support/cluster.ts";
import { testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { FAST } from "../../support/options.ts";
import { recording } from "../../support/recording.ts";
import { startWorkerProcess } from "../../support/worker-processes.ts";
import { STEADY, statusOf } from "./handled.ts";
import {
  appendOrders,
  builtScene,
  eventuallyBuilt,
  once,
  orderView,
  projectWrongly,
  rebuildScene,
  schemasOf,
  sumsOf,
  VIEW,
} from "./rebuild-scene.ts";

/** Appends whenever the projection has caught up, until it is stopped, and says how many. */
function steadyOrders(mill: Parameters<typeof appendOrders>[0]) {
  const stopping = new AbortController();
  const run = async (): Promise<number> => {
    let count = 0;
    for (; !stopping.signal.aborted; count += 10) {
      await mill.waitFor(VIEW, { position: await appendOrders(mill, 10) });
    }
    return count;
  };
  const running = run();
  running.catch(() => {}); // Reported by stop().
  return {
    stop: async () => {
      stopping.abort();
      return await running;
    },
  };
}

describe("under load", () => {
  it("a rebuild gives the right rows, a swap and a roll back lose and double nothing", async () => {
    const { database, mill } = await rebuildScene();
    await appendOrders(mill, 200);
    await mill.runToHead({ ...STEADY, consumers: [orderView(projectWrongly)] });
    expect((await sumsOf(database)).cents).toBeGreaterThan(200);
    await mill.startWorker({ ...STEADY, consumers: [orderView()] });
    await mill.startWorker({ ...STEADY, consumers: [orderView()] });
    const load = steadyOrders(mill);

    const started = await mill.consumers.rebuilds.start(VIEW, { partitions: 3, reason: "VAT" });
    expect(started).toMatchObject({ state: "building", reason: "VAT" });
    const built = await eventuallyBuilt(mill);
    expect(built.partitions.map((one) => one.name)).toEqual([
      `${VIEW}~rebuild/0`,
      `${VIEW}~rebuild/1`,
      `${VIEW}~rebuild/2`,
    ]);
    // The projection itself never stopped.
    await mill.waitFor(VIEW, { position: await mill.latestPosition() });

    const comparison = await mill.consumers.rebuilds.compare(VIEW);
    expect(comparison.isSame).toBe(false);
    const [view, lines] = comparison.tables;
    expect(view).toMatchObject({ liveRows: 10, rebuiltRows: 10, different: 10, missing: 0 });
    // The numbers of the sequence are not the same, and do not count.
    expect(lines).toMatchObject({ different: 0, missing: 0, extra: 0, compared: "all" });
    expect(lines?.liveRows).toBe(lines?.rebuiltRows);

    const before = await statusOf(mill, VIEW);
    const position = await mill.consumers.rebuilds.swap(VIEW);
    expect(position).toBeGreaterThanOrEqual(before.checkpoint);
    await appendOrders(mill, 10);
    const appended = 200 + (await load.stop()) + 10;
    await mill.waitFor(VIEW, { position: await mill.latestPosition() });
    expect(await sumsOf(database)).toEqual(once(appended));
    const old = await sumsOf(database, "tidemill_before_1");
    expect(old.events).toBe(old.lines);
    expect(old.lines).toBeLessThan(appended);

    const more = steadyOrders(mill);
    await mill.consumers.rebuilds.rollBack(VIEW);
    const all = appended + (await more.stop());
    await mill.waitFor(VIEW, { position: await mill.latestPosition() });
    const { cents, events, lines: rows } = await sumsOf(database);
    expect({ events, rows }).toEqual({ events: all, rows: all });
    expect(cents).toBe(old.cents + all - old.events);
    expect(await schemasOf(database)).toEqual(["tidemill_rebuild_1"]);
    await mill.consumers.rebuilds.cancel(VIEW);
    expect(await schemasOf(database)).toEqual([]);
  });

  it("partitions that are not equally far are brought to one position by each swap", async () => {
    const { database, mill } = await rebuildScene();
    const { rebuilds } = mill.consumers;
    await mill.startWorker({ ...STEADY, batchPause: 0, batchSize: 3, consumers: [orderView()] });
    await appendOrders(mill, 60);
    for (let round = 1; round <= 2; round += 1) {
      await rebuilds.start(VIEW, { partitions: 3 });
      await eventuallyBuilt(mill);
      const more = appendOrders(mill, 60);
      await rebuilds.swap(VIEW);
      await more;
      await mill.waitFor(VIEW, { position: await mill.latestPosition() });
      expect(await sumsOf(database)).toEqual(once(60 + round * 60));
      await rebuilds.forget(VIEW);
    }
  });
});

describe("a worker", () => {
  it("that is killed in the middle is replaced, and every event counts once", async () => {
    const database = await testDatabase();
    await createHandled(database);
    const mill = await database.connect();
    const positions = await appendEvents(mill, 600);
    const recorded = recording("recorded", { tables: ["handled"] });
    await mill.runToHead({ ...STEADY, consumers: [recorded] });
    const spec = {
      url: database.url,
      consumers: ["recorded"],
      tables: ["handled"],
      // Slow enough that the middle of it is seen.
      options: { ...FAST, batchSize: 10, batchPause: 150, heartbeatTimeout: 1_000 },
    };
    const [doomed] = await Promise.all([startWorkerProcess(spec), startWorkerProcess(spec)]);
    await eventually(async () => {
      expect(await readWorkerIds(database.pool)).toHaveLength(2);
      expect((await statusOf(mill, "recorded")).state).toBe("running");
    });
    await mill.consumers.rebuilds.start("recorded", { partitions: 4 });
    await eventually(async () => {
      const { partitions } = await mill.consumers.rebuilds.status("recorded");
      const theirs = partitions.filter((one) => one.workerId === doomed.id);
      expect(theirs.some((one) => one.checkpoint > 0n && one.lag > 0n)).toBe(true);
    });
    doomed.kill("SIGKILL");
    await eventuallyBuilt(mill, "recorded");
    expect(await mill.consumers.rebuilds.compare("recorded")).toMatchObject({
      tables: [{ liveRows: 600, rebuiltRows: 600, compared: "counts" }],
    });
    await mill.consumers.rebuilds.swap("recorded");
    const rows = await readHandled(database.pool);
    const found = rows.map((row) => row.position).sort((a, b) => Number(a - b));
    expect(found).toEqual(positions);
    expect(new Set(rows.map((row) => row.worker)).size).toBe(2);
  });
});

describe("a hold", () => {
  it("stops a consumer at exactly its position, and ends by itself", async () => {
    const { database, mill } = await builtScene(20);
    await database.pool.query(
      `INSERT INTO tidemill.consumer_holds
       VALUES ($1, 25, gen_random_uuid(), clock_timestamp() + INTERVAL '4 seconds')`,
      [VIEW],
    );
    const last = await appendOrders(mill, 20);
    await eventually(async () => expect((await statusOf(mill, VIEW)).checkpoint).toBe(25n));
    const { rows } = await database.pool.query(
      `SELECT FROM tidemill.consumer_holds
        WHERE until > clock_timestamp() AND (SELECT max(position) FROM order_lines) = 25`,
    );
    expect(rows).toHaveLength(1);
    await mill.waitFor(VIEW, { position: last });
    expect(await sumsOf(database)).toEqual(once(40));
  });
});
