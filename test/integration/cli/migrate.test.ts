import { expect, it } from "vitest";
import { bootstrapSql, loadMigrations, resolvePartitioning } from "../../../src/db/migrations.ts";
import { resolveNames } from "../../../src/db/names.ts";
import { consumer, DuplicateEventError, Tidemill } from "../../../src/index.ts";
import { testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { cli, STEADY, startCli, tableCounts } from "./cli.ts";

const order = { type: "Order", id: "1" };

it("a dry run says what would be applied, and applies nothing", async () => {
  const { url, pool } = await testDatabase({ migrated: false });
  const said = await cli(url, "migrate", "--dry-run");
  expect(said).toMatch(/^Would apply 1 event_store\nWould apply 2 cluster\n/);
  expect(await tableCounts(pool)).toEqual({});
});

it("applies once: the second time there is nothing to do", async () => {
  const database = await testDatabase({ migrated: false });
  const first = await cli(database.url, "migrate");
  expect(first).toMatch(/^Applied 1 event_store\n/);
  expect(first).toMatch(/Schema tidemill is at version \d+\.\n$/);
  const before = await tableCounts(database.pool);
  const second = await cli(database.url, "migrate");
  expect(second).toMatch(/^Schema tidemill is at version \d+; nothing to apply\.\n$/);
  expect(await tableCounts(database.pool)).toEqual(before);
  const mill = await database.connect();
  expect((await mill.append(order, [{ type: "OrderPaid" }])).position).toBe(1n);
});

it("two at once apply each migration once", async () => {
  const { url, pool } = await testDatabase({ migrated: false });
  const env = { DATABASE_URL: url };
  const ended = await Promise.all([1, 2].map(() => startCli(["migrate", "--json"], { env }).ended));
  const applied = ended.map(({ stdout }) => JSON.parse(stdout).applied as { version: number }[]);
  const { rows } = await pool.query("SELECT version FROM tidemill.migrations ORDER BY version");
  expect(applied.flat().map((one) => one.version)).toEqual(rows.map((row) => row.version));
});

it("one that waited for another finds everything applied", async () => {
  const database = await testDatabase({ migrated: false });
  const other = await database.session();
  await other.query("BEGIN");
  await other.query("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", [
    "tidemill migrations tidemill",
  ]);
  const waiting = Tidemill.migrate(database.url);
  await eventually(async () => {
    // Of this database: others of the server have tests that wait for locks of theirs.
    const { rowCount } = await database.pool.query(
      `SELECT FROM pg_locks JOIN pg_database ON pg_database.oid = pg_locks.database
        WHERE NOT granted AND locktype = 'advisory' AND datname = current_database()`,
    );
    expect(rowCount).toBe(1);
  });
  // Only the record of it: little enough that the server does not refresh the other's caches.
  const names = resolveNames();
  await other.query(bootstrapSql(names));
  for (const { version, name, checksum } of loadMigrations(names, resolvePartitioning())) {
    const row = [version, name, checksum];
    await other.query("INSERT INTO tidemill.migrations VALUES ($1, $2, $3)", row);
  }
  await other.query("COMMIT");
  expect((await waiting).applied).toEqual([]);
});

it("custom names in other schemas work for everything that follows", async () => {
  const database = await testDatabase({ migrated: false });
  const names = [
    ["--schema", "mill"],
    ["--events-table", "log.order-events"],
    ["--stream-heads-table", "log.heads"],
    ["--worker-nodes-table", "infra.nodes"],
    ["--consumer-checkpoints-table", "infra.checkpoints"],
  ].flat();
  const said = await cli(database.url, "migrate", ...names);
  expect(said).toMatch(/Schema mill is at version/);
  const mill = await database.connect({
    schema: "mill",
    tables: {
      events: "log.order-events",
      streamHeads: "log.heads",
      workerNodes: "infra.nodes",
      consumerCheckpoints: "infra.checkpoints",
    },
  });
  await mill.append(order, [{ type: "OrderPaid" }]);
  const seen: string[] = [];
  const view = consumer("view", { handle: (event) => seen.push(event.type) });
  await mill.runToHead({ consumers: [view], ...STEADY });
  expect(seen).toEqual(["OrderPaid"]);
  const listed = JSON.parse(await cli(database.url, ...names, "consumer", "list", "--json"));
  expect(listed).toMatchObject([{ name: "view", checkpoint: "1", lag: "0" }]);
});

it("a partitioned log takes an append across a boundary and keeps event ids unique", async () => {
  const database = await testDatabase({ migrated: false });
  const native = ["--partition-strategy", "native"];
  const sizes = ["--partition-size", "10", "--initial-partitions", "2"];
  await cli(database.url, "migrate", ...native, ...sizes);
  const mill = await database.connect();
  const id = "00000000-0000-4000-8000-000000000001";
  const events = Array.from({ length: 14 }, () => ({ type: "OrderPaid" }));
  await mill.append(order, [{ type: "OrderPlaced", id }, ...events]);
  const { rows } = await database.pool.query(
    `SELECT tableoid::regclass::text AS leaf, count(*)::int AS events
       FROM tidemill.events GROUP BY 1 ORDER BY 1`,
  );
  expect(rows).toEqual([
    { leaf: "tidemill.events_p0000000001_p0000000011", events: 10 },
    { leaf: "tidemill.events_p0000000011_p0000000021", events: 5 },
  ]);
  const again = mill.append({ type: "Order", id: "2" }, [{ type: "OrderPlaced", id }]);
  await expect(again).rejects.toThrow(DuplicateEventError);
  const seen: bigint[] = [];
  const view = consumer("view", { handle: (event) => seen.push(event.position) });
  await mill.runToHead({ consumers: [view], ...STEADY });
  expect(seen).toEqual(Array.from({ length: 15 }, (_, index) => BigInt(index + 1)));
  // The layout is chosen once: migrating again without the flag changes nothing.
  expect(await cli(database.url, "migrate")).toMatch(/nothing to apply/);
});
