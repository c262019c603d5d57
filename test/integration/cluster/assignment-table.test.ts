import { expect, it } from "vitest";
import type { Worker } from "../../../src/index.ts";
import { readOwners } from "../../support/cluster.ts";
import { type TestDatabase, testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { FAST } from "../../support/options.ts";
import { recording } from "../../support/recording.ts";

const CONSUMERS = ["Shipping", "Orders", "Inventory", "Email", "Billing", "Analytics"];

/** The table in the manual of the source, row by row. */
const TABLES = [
  ["Analytics, Billing, Email, Inventory, Orders, Shipping"],
  ["Analytics, Email, Orders", "Billing, Inventory, Shipping"],
  ["Analytics, Inventory", "Billing, Orders", "Email, Shipping"],
  ["Analytics", "Billing", "Email", "Inventory", "Orders", "Shipping"],
];

async function startWorkers(database: TestDatabase, count: number): Promise<Worker[]> {
  const mill = await database.connect();
  return await Promise.all(
    Array.from({ length: count }, () =>
      mill.startWorker({
        ...FAST,
        assignment: "round-robin",
        // A late heartbeat on a busy machine would be a death, and deal the table anew.
        heartbeatInterval: 200,
        heartbeatTimeout: 5_000,
        batchConnections: 2,
        consumers: CONSUMERS.map((name) => recording(name)),
      }),
    ),
  );
}

/** Waits until the assignments, worker by worker in the order of their ids, are this table. */
async function eventuallyTable(
  database: TestDatabase,
  workers: readonly Worker[],
  table: readonly string[],
): Promise<void> {
  const ids = workers.map((worker) => worker.id).sort();
  await eventually(async () => {
    const owners = [...(await readOwners(database.pool))].sort(([a], [b]) => (a < b ? -1 : 1));
    const rows = ids.map((id) => owners.filter(([, owner]) => owner === id).map(([name]) => name));
    expect(rows.map((names) => names.join(", "))).toEqual(table);
  });
  const running = (): string[] =>
    workers.toSorted((a, b) => (a.id < b.id ? -1 : 1)).map((worker) => worker.assigned.join(", "));
  await eventually(() => expect(running()).toEqual(table));
}

it.each(TABLES.map((table) => [table.length, table] as const))(
  "deals six consumers to %i workers as the source's table does",
  async (count, table) => {
    const database = await testDatabase();
    const workers = await startWorkers(database, count);
    await eventuallyTable(database, workers, table);
  },
);

it("leaves a seventh worker idle until one of the others stops", async () => {
  const database = await testDatabase();
  const workers = await startWorkers(database, 7);
  const [first, ...others] = workers.toSorted((a, b) => (a.id < b.id ? -1 : 1));
  const six = TABLES[3]!;
  await eventuallyTable(database, workers, [...six, ""]);
  await first!.stop();
  await eventuallyTable(database, others, six);
});
