import { expect, it } from "vitest";
import { shortId } from "../../../dashboard/src/format.ts";
import { consumer, type Status } from "../../../src/index.ts";
import { type TestDatabase, testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { cli, STEADY, startCli } from "./cli.ts";

const order = { type: "Order", id: "1" };

/** A worker that met an event its handler cannot take, and left. */
async function quarantine(database: TestDatabase): Promise<void> {
  const mill = await database.connect();
  const view = consumer("order_view", {
    handle: (event) => {
      if (event.type === "OrderPaid") throw new Error("total is missing\nin the payload");
    },
  });
  const worker = await mill.startWorker({
    ...STEADY,
    consumers: [view],
    maxConsecutiveFailures: 2,
  });
  await mill.append(order, [
    { type: "OrderPlaced" },
    { type: "OrderPaid", id: "00000000-0000-4000-8000-000000000001" },
    { type: "OrderShipped" },
  ]);
  await eventually(async () => {
    expect(await mill.listConsumers()).toMatchObject([{ state: "quarantined" }]);
  });
  await worker.stop();
}

/** What differs from run to run. */
function withoutChance(text: string): string {
  return text
    .replace(/^ {4}at (?!.*status\.test\.ts).*\n/gm, "")
    .replace(/[^\s()]*\/test\/integration/g, "test/integration")
    .replace(/status\.test\.ts:\d+:\d+/g, "status.test.ts:LINE")
    .replace(/[\d.]+ s ago/g, "N s ago")
    .replace(/\b[0-9a-f]{8} \(term/g, "WORKER (term");
}

it("tells the story of a quarantined consumer", async () => {
  const database = await testDatabase();
  await quarantine(database);
  expect(withoutChance(await cli(database.url, "status"))).toMatchInlineSnapshot(`
    "position 3 · no leader

    No worker is running.
      and 1 that stopped; --all shows them

      CONSUMER    STATE        CHECKPOINT  LAG  PARKED  WORKER
      order_view  quarantined           1    2       -  -

    Quarantined: order_view stopped at position 2 after 2 failures, N s ago
      Event 00000000-0000-4000-8000-000000000001
      total is missing in the payload
        at Object.handle (test/integration/cli/status.test.ts:LINE)
      Fix the handler, then: tidemill consumer resume order_view
      Or pass this event for ever: tidemill consumer skip order_view --reason "..."
    "
  `);
});

it("prints one JSON document, with positions as strings", async () => {
  const database = await testDatabase();
  await quarantine(database);
  const status = JSON.parse(await cli(database.url, "status", "--json")) as Status;
  expect(status).toMatchObject({
    at: expect.stringMatching(/^\d{4}-.+Z$/),
    latestPosition: "3",
    leader: { term: "1" },
    workers: [{ status: "stopped", pid: process.pid, assigned: [] }],
    consumers: [
      {
        name: "order_view",
        checkpoint: "1",
        lag: "2",
        state: "quarantined",
        poison: {
          position: "2",
          eventId: "00000000-0000-4000-8000-000000000001",
          error: "total is missing\nin the payload",
          failures: 2,
        },
      },
    ],
    openGaps: { positions: [], holders: [] },
  });
  expect(status.consumers[0]?.poison?.stack).toMatch(/status\.test\.ts/);
});

it("shows workers as the dashboard calls them, the leader, and what each runs", async () => {
  const database = await testDatabase();
  const mill = await database.connect();
  const view = consumer("order_view", { handle: () => {} });
  const worker = await mill.startWorker({ ...STEADY, consumers: [view] });
  await eventually(() => expect(worker.assigned).toEqual(["order_view"]));
  const id = shortId(worker.id);
  expect(worker.id.startsWith(id)).toBe(true);
  const shown = await cli(database.url, "status");
  expect(shown).toContain(`leader ${id} (term 1)`);
  expect(shown).toMatch(new RegExp(`${id} +active, leader .*${process.pid} .*order_view\n`));
  expect(shown).toMatch(new RegExp(`order_view +running +0 +0 +- +${id}\n`));
  await worker.stop();
  expect(await cli(database.url, "status")).toMatch(/No worker is running\.\n.*--all shows/);
  expect(await cli(database.url, "status", "--all")).toMatch(new RegExp(`${id} +stopped`));
});

it("names who holds an open gap", async () => {
  const database = await testDatabase();
  const mill = await database.connect();
  const session = await database.session();
  await session.query("SET application_name = 'a slow import'");
  await session.query("BEGIN");
  await mill.append({ type: "Order", id: "slow" }, [{ type: "OrderPlaced" }], { tx: session });
  await mill.append(order, [{ type: "OrderPlaced" }]);
  const { rows } = await session.query<{ pid: number }>("SELECT pg_backend_pid() AS pid");
  // A gap younger than a second is an append in flight, which is no news.
  const shown = await eventually(
    async () => {
      const text = await cli(database.url, "status");
      expect(text).toContain("Open gap: position 1 may still be filled");
      return text;
    },
    { everyMs: 200 },
  );
  expect(shown).toMatch(
    new RegExp(`${rows[0]?.pid} +a slow import +\\w+ +idle in transaction +[\\d.]+ s`),
  );
  await session.query("COMMIT");
  expect(await cli(database.url, "status")).not.toContain("Open gap");
});

it("watches until it is interrupted, one document per line with --json", async () => {
  const database = await testDatabase();
  const running = startCli(["status", "--watch", "--json"], {
    env: { DATABASE_URL: database.url },
  });
  await running.line(/"latestPosition":"0"/);
  const mill = await database.connect();
  const view = consumer("order_view", { handle: () => {} });
  await mill.append(order, [{ type: "OrderPlaced" }]);
  await mill.runToHead({ ...STEADY, consumers: [view] });
  await running.line(/"latestPosition":"1"/);
  running.child.kill("SIGINT");
  expect(await running.ended).toMatchObject({ code: 0, stderr: "" });
});
