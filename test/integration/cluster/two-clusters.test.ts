import { expect, it } from "vitest";
import { SchemaError, Tidemill } from "../../../src/index.ts";
import {
  appendEvents,
  createHandled,
  expectOnceInOrder,
  readHandled,
} from "../../support/cluster.ts";
import { onCleanup, testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { FAST } from "../../support/options.ts";
import { recording } from "../../support/recording.ts";

it.each(["advisory", "lease"] as const)(
  "runs two clusters in one database, each with a leader of its own (%s)",
  async (leaderStrategy) => {
    const database = await testDatabase({ migrated: false });
    await createHandled(database);
    const start = async (schema: string) => {
      await Tidemill.migrate(database.url, { schema });
      const mill = await Tidemill.connect(database.url, { schema });
      onCleanup(() => mill.close());
      const consumers = [recording(`${schema}-orders`)];
      const options = { ...FAST, heartbeatTimeout: 5_000, leaderStrategy, consumers };
      return { mill, worker: await mill.startWorker(options) };
    };
    const [north, south] = [await start("north"), await start("south")];
    await eventually(() => {
      expect([north.worker.isLeader, south.worker.isLeader]).toEqual([true, true]);
    });
    // Not as many in both, so that a consumer that read the other's log would show.
    const [inNorth, inSouth] = [
      await appendEvents(north.mill, 3),
      await appendEvents(south.mill, 5),
    ];
    await north.mill.waitFor("north-orders", { position: inNorth.at(-1)! });
    await south.mill.waitFor("south-orders", { position: inSouth.at(-1)! });
    await expectOnceInOrder(database.pool, ["north-orders"], inNorth);
    await expectOnceInOrder(database.pool, ["south-orders"], inSouth);
    const workers = (await readHandled(database.pool)).map((row) => [row.consumer, row.worker]);
    expect(new Map(workers as [string, string][])).toEqual(
      new Map([
        ["north-orders", north.worker.id],
        ["south-orders", south.worker.id],
      ]),
    );
    expect((await north.mill.status()).workers.map((one) => one.id)).toEqual([north.worker.id]);
  },
);

it("refuses a second cluster with other table names in the schema of the first", async () => {
  const database = await testDatabase();
  const other = { tables: { workerNodes: "other_nodes", consumerAssignments: "other_owners" } };
  for (const refused of [
    () => Tidemill.migrate(database.url, other),
    () => Tidemill.connect(database.url, other),
  ]) {
    const error: unknown = await refused().catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(SchemaError);
    expect(error).toMatchObject({ message: expect.stringMatching(/other table names.*schema/) });
  }
  const { rows } = await database.pool.query(
    "SELECT tablename FROM pg_tables WHERE tablename LIKE 'other%'",
  );
  expect(rows).toEqual([]);
});
