import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type pg from "pg";
import { beforeEach, expect, it } from "vitest";
import { ConfigError, ConflictError, generateMigrations } from "../../../src/index.ts";
import { onCleanup, testDatabase } from "../../support/database.ts";
import { runCli, tableCounts } from "./cli.ts";

let folder: string;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "tidemill-generate-"));
  onCleanup(async () => rmSync(folder, { recursive: true, force: true }));
});

/** Everything that `migrate` makes, as PostgreSQL describes it. */
async function describeSchema(pool: pg.Pool): Promise<unknown[]> {
  const { rows } = await pool.query(
    `SELECT table_schema || '.' || table_name || '.' || column_name AS what,
            data_type || ' ' || is_nullable || ' ' || COALESCE(column_default, '') AS how
       FROM information_schema.columns
      WHERE table_schema NOT IN ('pg_catalog', 'information_schema')
     UNION ALL
     SELECT schemaname || '.' || indexname, indexdef FROM pg_indexes
      WHERE schemaname NOT IN ('pg_catalog', 'information_schema')
     UNION ALL
     SELECT tgname || ' on ' || tgrelid::regclass, pg_get_triggerdef(oid) FROM pg_trigger
      WHERE NOT tgisinternal
     UNION ALL
     SELECT 'migration ' || version, name || ' ' || checksum FROM tidemill.migrations
     UNION ALL
     SELECT 'setting ' || key, CASE key WHEN 'tenant_role' THEN 'of the database' ELSE value END
       FROM tidemill.settings
      ORDER BY 1, 2`,
  );
  return rows;
}

it("writes one file that only its owner may read, in a folder that it makes", async () => {
  const { code, stdout, stderr } = await runCli(["migrate", "generate"], { cwd: folder });
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  const name = /^Generated PostgreSQL migration: (migrations\/\d{14}_init_tidemill\.sql)\n$/;
  const path = join(folder, name.exec(stdout)?.[1] ?? "not printed");
  expect(statSync(join(folder, "migrations")).mode & 0o777).toBe(0o755);
  expect(statSync(path).mode & 0o777).toBe(0o600);
});

it("keeps a file that exists unless forced, and says so", async () => {
  const path = join(folder, "001.sql");
  writeFileSync(path, "-- mine\n", { mode: 0o644 });
  const args = ["migrate", "generate", "--output", folder, "--filename", "001.sql"];
  const kept = await runCli(args);
  expect(kept).toMatchObject({ code: 1, stdout: "" });
  expect(kept.stderr).toMatch(/^tidemill: .*001\.sql exists and was kept; .*--force\)\n$/);
  expect(readFileSync(path, "utf8")).toBe("-- mine\n");
  const forced = await runCli([...args, "--force"]);
  expect(forced).toMatchObject({ code: 0, stdout: `Generated PostgreSQL migration: ${path}\n` });
  expect(statSync(path).mode & 0o777).toBe(0o600);
  const unwritable = await runCli(["migrate", "generate", "--output", join(path, "below")]);
  expect(unwritable.code).toBe(1);
  expect(unwritable.stderr).toMatch(/^tidemill: cannot write [^\n]+ENOTDIR[^\n]+\n$/);
});

it("refuses flags that cannot work, and writes no file", async () => {
  const options = { outputFolder: join(folder, "new") };
  await expect(generateMigrations({ ...options, eventsTable: "a b" })).rejects.toThrow(ConfigError);
  await expect(generateMigrations({ ...options, outputFilename: "../x.sql" })).rejects.toThrow(
    /is not a file name/,
  );
  const typo = { ...options, eventTable: "x" };
  await expect(generateMigrations(typo)).rejects.toThrow(/did you mean "eventsTable"/);
  const { code, stderr } = await runCli(
    ["migrate", "generate", "--partition-strategy", "partman"],
    { cwd: folder },
  );
  expect(code).toBe(2);
  expect(stderr).toMatch(/^tidemill: .*Allowed choices are none, native\. [^\n]+\n$/);
  expect(() => statSync(join(folder, "new"))).toThrow("ENOENT");
});

it("makes exactly what migrate makes", async () => {
  const [generated, migrated] = [await testDatabase({ migrated: false }), await testDatabase()];
  const { path, sql } = await generateMigrations({ outputFolder: folder });
  expect(readFileSync(path, "utf8")).toBe(sql);
  await generated.pool.query(sql);
  expect(await describeSchema(generated.pool)).toEqual(await describeSchema(migrated.pool));
  const mill = await generated.connect();
  expect((await mill.append({ type: "Order", id: "1" }, [{ type: "OrderPaid" }])).position).toBe(
    1n,
  );
});

it("is refused by a schema that has the tables, which stay as they are", async () => {
  const { pool } = await testDatabase();
  const before = await tableCounts(pool);
  const { sql } = await generateMigrations({ outputFolder: folder });
  await expect(pool.query(sql)).rejects.toThrow('run "tidemill migrate" to upgrade');
  expect(await tableCounts(pool)).toEqual(before);
});

it("makes each schema once, and the longest names work, partitioned or not", async () => {
  const long = (prefix: string, bytes = 63): string =>
    `${prefix}_${"x".repeat(bytes - 1 - prefix.length)}`;
  const otherTables = {
    streamHeads: `log.${long("heads")}`,
    workerNodes: `infra.${long("nodes")}`,
    consumerAssignments: `infra.${long("assignments")}`,
    consumerCheckpoints: `infra.${long("checkpoints")}`,
    consumerGapSkips: long("gaps"),
    workerLeaderElection: long("election"),
  };
  for (const partitionStrategy of ["none", "native"] as const) {
    // Names of partitions end in their bounds, which take 24 bytes.
    const events = `log.${long("events", partitionStrategy === "none" ? 63 : 39)}`;
    const tables = { ...otherTables, events };
    const database = await testDatabase({ migrated: false });
    const { sql } = await generateMigrations({
      outputFolder: folder,
      outputFilename: `${partitionStrategy}.sql`,
      partitionStrategy,
      partitionSize: 10,
      eventsTable: events,
      streamHeadsTable: tables.streamHeads,
      workerNodesTable: tables.workerNodes,
      consumerAssignmentsTable: tables.consumerAssignments,
      consumerCheckpointsTable: tables.consumerCheckpoints,
      consumerGapSkipsTable: tables.consumerGapSkips,
      leaderElectionTable: tables.workerLeaderElection,
    });
    const schemas = sql.match(/CREATE SCHEMA IF NOT EXISTS "\w+";/g);
    expect(schemas?.toSorted()).toEqual([
      'CREATE SCHEMA IF NOT EXISTS "infra";',
      'CREATE SCHEMA IF NOT EXISTS "log";',
      'CREATE SCHEMA IF NOT EXISTS "tidemill";',
    ]);
    const session = await database.session();
    const truncated: (string | undefined)[] = [];
    session.on("notice", ({ message }) => truncated.push(message));
    await session.query(sql);
    expect(truncated.filter((message) => message?.includes("truncated"))).toEqual([]);
    const mill = await database.connect({ tables });
    const appended = Array.from({ length: 15 }, () => ({ type: "OrderPaid" }));
    expect((await mill.append({ type: "Order", id: "1" }, appended)).position).toBe(15n);
  }
});

it("keeps the tables of eventsalsa and what is in them", async () => {
  const database = await testDatabase({ migrated: false });
  await database.pool.query(EVENTSALSA);
  const { sql } = await generateMigrations({
    outputFolder: folder,
    columnFamily: "aggregate",
    eventsTable: "public.events",
    streamHeadsTable: "public.aggregate_heads",
    workerNodesTable: "public.worker_nodes",
    consumerAssignmentsTable: "public.consumer_assignments",
    consumerCheckpointsTable: "public.consumer_checkpoints",
    consumerGapSkipsTable: "public.consumer_gap_skips",
    leaderElectionTable: "public.worker_leader_election",
  });
  const before = await tableCounts(database.pool);
  await database.pool.query(sql);
  expect(await tableCounts(database.pool)).toMatchObject(before);
  const mill = await database.connect({
    compat: "eventsalsa",
    columnFamily: "aggregate",
    tables: {
      events: "public.events",
      streamHeads: "public.aggregate_heads",
      workerNodes: "public.worker_nodes",
      consumerAssignments: "public.consumer_assignments",
      consumerCheckpoints: "public.consumer_checkpoints",
      consumerGapSkips: "public.consumer_gap_skips",
      workerLeaderElection: "public.worker_leader_election",
    },
  });
  await mill.append({ type: "Order", id: "1" }, [{ type: "OrderPaid" }], { expectedVersion: 1 });
  expect((await mill.readAll()).map((one) => one.type)).toEqual(["OrderPlaced", "OrderPaid"]);
});

it("a conflict is one that the caller can tell apart", async () => {
  const options = { outputFolder: folder, outputFilename: "x.sql" };
  await generateMigrations(options);
  await expect(generateMigrations(options)).rejects.toThrow(ConflictError);
});

/** As its own generators write it, with one event and one consumer that read it. */
const EVENTSALSA = `
CREATE TABLE events (
    global_position BIGSERIAL PRIMARY KEY,
    aggregate_type TEXT NOT NULL, aggregate_id TEXT NOT NULL, aggregate_version BIGINT NOT NULL,
    event_id UUID NOT NULL UNIQUE, event_type TEXT NOT NULL, event_version INT NOT NULL DEFAULT 1,
    payload BYTEA NOT NULL, trace_id TEXT, correlation_id TEXT, causation_id TEXT, metadata JSONB,
    created_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    UNIQUE (aggregate_type, aggregate_id, aggregate_version));
CREATE TABLE aggregate_heads (
    aggregate_type TEXT NOT NULL, aggregate_id TEXT NOT NULL, aggregate_version BIGINT NOT NULL,
    updated_at TIMESTAMPTZ NOT NULL DEFAULT NOW(), PRIMARY KEY (aggregate_type, aggregate_id));
CREATE TABLE worker_nodes (
    worker_id UUID PRIMARY KEY, heartbeat_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    created_at TIMESTAMPTZ NOT NULL DEFAULT NOW(), updated_at TIMESTAMPTZ NOT NULL DEFAULT NOW());
CREATE INDEX idx_worker_nodes_heartbeat ON worker_nodes (heartbeat_at);
CREATE TABLE consumer_assignments (
    consumer_name TEXT PRIMARY KEY,
    worker_id UUID REFERENCES worker_nodes(worker_id) ON DELETE SET NULL,
    created_at TIMESTAMPTZ NOT NULL DEFAULT NOW(), updated_at TIMESTAMPTZ NOT NULL DEFAULT NOW());
CREATE TABLE consumer_checkpoints (
    consumer_name TEXT PRIMARY KEY, last_position BIGINT NOT NULL DEFAULT 0,
    created_at TIMESTAMPTZ NOT NULL DEFAULT NOW(), updated_at TIMESTAMPTZ NOT NULL DEFAULT NOW());
INSERT INTO events (aggregate_type, aggregate_id, aggregate_version, event_id, event_type, payload)
VALUES ('Order', '1', 1, gen_random_uuid(), 'OrderPlaced', '{}');
INSERT INTO aggregate_heads VALUES ('Order', '1', 1);
INSERT INTO consumer_checkpoints VALUES ('order_overview_v1', 1);
`;
