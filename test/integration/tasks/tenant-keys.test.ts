import { expect, it } from "vitest";
import { bootstrapSql, loadMigrations, resolvePartitioning } from "../../../src/db/migrations.ts";
import { resolveNames } from "../../../src/db/names.ts";
import { queue, Tidemill } from "../../../src/index.ts";
import { onCleanup, type TestDatabase, testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";

const orders = queue<number>("orders");

/** A database as it was before keys belonged to tenants. */
async function before(): Promise<TestDatabase> {
  const database = await testDatabase({ migrated: false });
  const names = resolveNames();
  await database.pool.query(bootstrapSql(names));
  for (const one of loadMigrations(names, resolvePartitioning())) {
    if (one.version >= 14) continue;
    await database.pool.query(one.sql);
    await database.pool.query(
      "INSERT INTO tidemill.migrations (version, name, checksum) VALUES ($1, $2, $3)",
      [one.version, one.name, one.checksum],
    );
  }
  return database;
}

const LANES = `
  SELECT task.tenant, space.tenant AS owner, task.lane = -(space.id * 360 + bucket + 1) AS is_right
    FROM (SELECT tenant, lane, partition_bucket AS bucket FROM tidemill.tasks
           UNION ALL
          SELECT tenant, lane, partition_bucket FROM tidemill.dead_letters
           UNION ALL
          SELECT tenant, lane, tidemill.bucket_of(partition_key) FROM tidemill.key_holds
           UNION ALL
          SELECT pack.tenant, (pack.lane + 1) * 360 - one.bucket - 1, one.bucket
            FROM tidemill.task_packs AS pack, unnest(pack.buckets) AS one(bucket)) AS task
    LEFT JOIN tidemill.key_spaces AS space ON space.id = (-task.lane - 1) / 360`;

it("moves what waited before to the keys of its tenant", async () => {
  const database = await before();
  const { pool } = database;
  await pool.query(
    `INSERT INTO tidemill.key_spaces (name) VALUES ('none'), ('orders');
     INSERT INTO tidemill.queues (name, key_space_id, settings) VALUES ('orders', 1, '{}');
     SELECT tidemill.enqueue('orders', to_jsonb(n), partition_key => 'k' || n % 3, tenant => tenant)
       FROM generate_series(1, 9) AS n, unnest('{default,acme,globex}'::text[]) AS tenant;
     INSERT INTO tidemill.key_holds (key_space_id, tenant, partition_key, lane, why)
     VALUES (1, 'initech', 'k1', -(360 + tidemill.bucket_of('k1') + 1), 'paused');
     INSERT INTO tidemill.task_packs
            (id, last_id, lane, queue, tenant, priority, max_attempts, ids, payloads, keys,
             buckets, bucket_set)
     SELECT number, number, -2, 'orders', 'acme', 5, 5, ARRAY[number], '99', 'k2',
            ARRAY[tidemill.bucket_of('k2')], set_bit(0::bit(360), tidemill.bucket_of('k2'), 1)
       FROM nextval('tidemill.task_numbers') AS number;
     UPDATE tidemill.tasks
        SET state = 'running', attempt = 1, lease_generation = 1, lease_until = NOW(),
            claim_id = '00000000-0000-0000-0000-000000000001',
            leased_by = '00000000-0000-0000-0000-000000000002'
      WHERE tenant = 'acme' AND payload = '1';
     INSERT INTO tidemill.task_claims (claim_id, worker_id, check_at, task_ids, key_lanes)
     SELECT claim_id, leased_by, NOW(), ARRAY[id], ARRAY[lane]
       FROM tidemill.tasks WHERE state = 'running'`,
  );
  await Tidemill.migrate(database.url);
  const { rows } = await pool.query(LANES);
  expect(rows).toHaveLength(29);
  for (const row of rows) expect(row).toMatchObject({ owner: row.tenant, is_right: true });
  const held = await pool.query(
    `SELECT FROM tidemill.tasks AS task JOIN tidemill.task_claims AS claim USING (claim_id)
      WHERE task.lane = ANY (claim.key_lanes)`,
  );
  expect(held.rows).toHaveLength(1);
  const mill = await database.connect();
  const ran: Record<string, number[]> = {};
  const handler = orders.handle(({ payload, tenant, partitionKey }) => {
    (ran[`${tenant}/${partitionKey}`] ??= []).push(payload);
  });
  const worker = await mill.startWorker({ handlers: [handler], dispatcherStrategy: "notify" });
  onCleanup(() => worker.stop());
  await eventually(() => expect(Object.values(ran).flat()).toHaveLength(28));
  expect(ran).toEqual(
    Object.fromEntries(
      ["default", "acme", "globex"].flatMap((tenant) => [
        [`${tenant}/k0`, [3, 6, 9]],
        [`${tenant}/k1`, [1, 4, 7]],
        [`${tenant}/k2`, tenant === "acme" ? [2, 5, 8, 99] : [2, 5, 8]],
      ]),
    ),
  );
});

it("waits for what is being enqueued, and moves that, too", async () => {
  const database = await before();
  await database.pool.query(
    `INSERT INTO tidemill.key_spaces (name) VALUES ('none'), ('orders');
     INSERT INTO tidemill.queues (name, key_space_id, settings) VALUES ('orders', 1, '{}')`,
  );
  const session = await database.session();
  await session.query("BEGIN");
  await session.query(
    "SELECT tidemill.enqueue('orders', '1', partition_key => 'k', tenant => 'acme')",
  );
  const migrating = Tidemill.migrate(database.url);
  const waiting = `SELECT FROM pg_locks AS one JOIN pg_database AS base ON base.oid = one.database
                    WHERE base.datname = current_database() AND NOT one.granted`;
  const waits = eventually(async () => {
    const { rowCount } = await database.pool.query(waiting);
    expect(rowCount).toBeGreaterThan(0);
  });
  await Promise.race([migrating, waits]);
  await session.query("COMMIT");
  await migrating;
  const { rows } = await database.pool.query(LANES);
  expect(rows).toEqual([{ tenant: "acme", owner: "acme", is_right: true }]);
});

it("gives the keys of a tenant one space, whoever enqueues first", async () => {
  const database = await testDatabase();
  const mills = [await database.connect(), await database.connect()];
  const [session] = [await database.session()];
  await mills[0]?.enqueue(orders, 0, { partitionKey: "k" });
  // By SQL, in a transaction that is not over: the others wait, or use theirs.
  await session.query("BEGIN");
  const options = "partition_key => 'k', tenant => 'a'";
  await session.query(`SELECT tidemill.enqueue('orders', '1', ${options})`);
  const inside = mills[0]?.enqueue(orders, 2, { partitionKey: "k", tenant: "a", tx: session });
  await inside;
  const outside = mills.map((mill) => mill.enqueue(orders, 3, { partitionKey: "k", tenant: "b" }));
  await Promise.all(outside);
  await session.query("COMMIT");
  await mills[1]?.enqueue(orders, 4, { partitionKey: "k", tenant: "a" });
  const { rows } = await database.pool.query(
    `SELECT tenant, array_agg(DISTINCT lane) AS lanes, count(*)::int AS count
       FROM tidemill.tasks GROUP BY tenant ORDER BY tenant`,
  );
  expect(rows.map(({ tenant, lanes, count }) => [tenant, lanes.length, count])).toEqual([
    ["a", 1, 3],
    ["b", 1, 2],
    ["default", 1, 1],
  ]);
  expect(new Set(rows.flatMap(({ lanes }) => lanes)).size).toBe(3);
  const spaces = await database.pool.query("SELECT FROM tidemill.key_spaces");
  expect(spaces.rows).toHaveLength(3);
});
