import { expect, it } from "vitest";
import { consumer, type Worker } from "../../../src/index.ts";
import { type TestDatabase, testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { STEADY, statusOf } from "./handled.ts";

const STREAMS = 40;

interface Row {
  readonly stream: string;
  readonly versions: number[];
  readonly workers: number;
}

const split = (partitions: number) =>
  consumer("split", {
    partitions,
    handle: async (event, { tx, workerId }) => {
      const values = [event.streamId, String(event.streamVersion), workerId];
      await tx.query("INSERT INTO handled (stream, version, worker) VALUES ($1, $2, $3)", values);
    },
  });

async function readStreams({ pool }: TestDatabase): Promise<Row[]> {
  const { rows } = await pool.query<Row>(
    `SELECT stream, array_agg(version ORDER BY n) AS versions,
            count(DISTINCT worker)::int AS workers
       FROM handled GROUP BY stream ORDER BY stream`,
  );
  return rows;
}

async function setup() {
  const database = await testDatabase();
  await database.pool.query(
    "CREATE TABLE handled (n SERIAL, stream TEXT, version INT, worker UUID)",
  );
  return { database, mill: await database.connect() };
}

it("runs four partitions on three workers: each event once, each stream in order", async () => {
  const { database, mill } = await setup();
  const workers: Worker[] = [];
  for (let index = 0; index < 3; index += 1) {
    workers.push(await mill.startWorker({ consumers: [split(4)], ...STEADY }));
  }
  await eventually(() => {
    expect(workers.map((worker) => worker.assigned.length).sort((a, b) => a - b)).toEqual([
      1, 1, 2,
    ]);
  });
  for (let version = 1; version <= 10; version += 1) {
    await Promise.all(
      Array.from({ length: STREAMS }, (_, id) =>
        mill.append({ type: "Order", id: String(id) }, [{ type: "Step" }]),
      ),
    );
    // Moves partitions to other workers in the middle of it.
    if (version === 5) await workers.shift()?.stop();
  }
  await mill.waitFor("split", { position: await mill.latestPosition() });
  const rows = await readStreams(database);
  expect(rows).toHaveLength(STREAMS);
  const inOrder = Array.from({ length: 10 }, (_, index) => index + 1);
  for (const { stream, versions } of rows) expect(versions, stream).toEqual(inOrder);
  const { rows: shares } = await database.pool.query(
    "SELECT count(*) FROM handled GROUP BY worker",
  );
  expect(shares).toHaveLength(3);
});

it("spreads streams over all partitions, and each partition has a checkpoint", async () => {
  const { mill } = await setup();
  for (let id = 0; id < STREAMS; id += 1) {
    await mill.append({ type: "Order", id: String(id) }, [{ type: "Step" }]);
  }
  await mill.runToHead({ consumers: [split(4)], ...STEADY });
  const names = (await mill.listConsumers()).map((one) => one.name);
  expect(names).toEqual(["split/0", "split/1", "split/2", "split/3"]);
  for (const name of names) {
    expect((await statusOf(mill, name)).checkpoint).toBe(BigInt(STREAMS));
    expect(mill.metrics.eventsHandled.value({ consumer: name })).toBeGreaterThan(0);
  }
});

it.each([2, 1])("refuses to run four partitions as %i", async (partitions) => {
  const { mill } = await setup();
  await mill.append({ type: "Order", id: "1" }, [{ type: "Step" }]);
  await mill.runToHead({ consumers: [split(4)], ...STEADY });
  const refused = mill.startWorker({ consumers: [split(partitions)], ...STEADY });
  await expect(refused).rejects.toMatchObject({
    code: "TM_CONFIG",
    message:
      'consumer "split" is stored with 4 partition(s); keep that number, or run ' +
      '"tidemill consumer repartition split --partitions N"',
  });
  expect((await mill.listConsumers()).map((one) => one.name)).toHaveLength(4);
  const { workers } = await mill.status();
  expect(workers.filter((worker) => worker.status === "active")).toEqual([]);
});

it("refuses to split a consumer that ran whole", async () => {
  const { mill } = await setup();
  await mill.runToHead({ consumers: [split(1)], ...STEADY });
  const refused = mill.startWorker({ consumers: [split(4)], ...STEADY });
  await expect(refused).rejects.toThrow("is stored with 1 partition(s)");
});

it("splits a consumer anew where it stopped, and handles nothing twice", async () => {
  const { database, mill } = await setup();
  const append = async (): Promise<void> => {
    for (let id = 0; id < STREAMS; id += 1) {
      await mill.append({ type: "Order", id: String(id) }, [{ type: "Step" }]);
    }
  };
  await append();
  await mill.runToHead({ consumers: [split(2)], ...STEADY });
  await mill.consumers.repartition("split", { partitions: 5 });
  await append();
  await mill.runToHead({ consumers: [split(5)], ...STEADY });
  for (const { stream, versions } of await readStreams(database)) {
    expect(versions, stream).toEqual([1, 2]);
  }
  expect(await mill.listConsumers()).toHaveLength(5);
});

it("stops one partition at a poison event and runs the others on", async () => {
  const { mill } = await setup();
  const picky = consumer("picky", {
    partitions: 4,
    handle: (event) => {
      if (event.streamId === "7") throw new Error("poison");
    },
  });
  for (let id = 0; id < STREAMS; id += 1) {
    await mill.append({ type: "Order", id: String(id) }, [{ type: "Step" }]);
  }
  await mill.startWorker({ consumers: [picky], ...STEADY, maxConsecutiveFailures: 1 });
  const states = await eventually(async () => {
    const all = await mill.listConsumers();
    expect(all.filter((one) => one.checkpoint === BigInt(STREAMS))).toHaveLength(3);
    expect(all.filter((one) => one.state === "quarantined")).toHaveLength(1);
    return all;
  });
  expect(states.find((one) => one.state === "quarantined")?.poison?.position).toBe(8n);
  const waiting = mill.waitFor(picky, { position: BigInt(STREAMS) });
  await expect(waiting).rejects.toThrow("picky is quarantined at 7");
});
