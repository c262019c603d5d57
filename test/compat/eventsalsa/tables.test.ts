import type pg from "pg";
import { describe, expect, it } from "vitest";
import { Tidemill } from "../../../src/index.ts";
import { eventually } from "../../support/eventually.ts";
import { salsaAppend } from "../../support/salsa-appender.ts";
import {
  CONSUMERS,
  MixedCluster,
  salsaConnectOptions,
  salsaDatabase,
  withoutLeader,
} from "../../support/salsa-cluster.ts";
import { expectEachOnceInOrder } from "./scenario.ts";

/** Everything about the public tables that a migration could change, and their rows. */
async function describePublic(pool: pg.Pool): Promise<Record<string, unknown[]>> {
  const facts = {
    columns: `SELECT * FROM information_schema.columns WHERE table_schema = 'public'
               ORDER BY table_name, ordinal_position`,
    constraints: `SELECT conrelid::regclass::text AS on, conname, pg_get_constraintdef(oid)
                    FROM pg_constraint WHERE connamespace = 'public'::regnamespace ORDER BY 1, 2`,
    indexes: "SELECT * FROM pg_indexes WHERE schemaname = 'public' ORDER BY indexname",
    sequences: "SELECT * FROM pg_sequences WHERE schemaname = 'public' ORDER BY sequencename",
    tables: `SELECT relname, relkind, relpersistence, relrowsecurity, reloptions FROM pg_class
              WHERE relnamespace = 'public'::regnamespace ORDER BY relname`,
    functions: "SELECT proname FROM pg_proc WHERE pronamespace = 'public'::regnamespace",
  };
  const found: Record<string, unknown[]> = {};
  for (const [what, text] of Object.entries(facts)) found[what] = (await pool.query(text)).rows;
  const tables = await pool.query<{ name: string }>(
    "SELECT tablename AS name FROM pg_tables WHERE schemaname = 'public' ORDER BY 1",
  );
  for (const { name } of tables.rows) {
    const { rows } = await pool.query(`SELECT xmin, * FROM public.${name} ORDER BY 2`);
    found[`rows of ${name}`] = rows;
  }
  return found;
}

async function readTriggers(pool: pg.Pool): Promise<{ on: string; name: string }[]> {
  const { rows } = await pool.query(
    `SELECT tgrelid::regclass::text AS on, tgname AS name FROM pg_trigger
      WHERE NOT tgisinternal ORDER BY 1, 2`,
  );
  return rows;
}

describe.each(["stream", "aggregate"] as const)("a salsa database with %s_* columns", (family) => {
  it("keeps its tables and rows as they are and adds a trigger and a schema", async () => {
    const { url, pool } = await salsaDatabase(family);
    await pool.query(
      `INSERT INTO worker_nodes VALUES ('5e0c4ac0-6d2b-4b8e-9a4c-3d6bb2f0a001');
       INSERT INTO consumer_assignments SELECT 'orders', worker_id FROM worker_nodes;
       INSERT INTO consumer_checkpoints VALUES ('orders', 2);
       INSERT INTO worker_leader_election SELECT 'leader', worker_id, NOW() FROM worker_nodes;
       INSERT INTO consumer_gap_skips
              (consumer_name, worker_id, gap_position, skip_to_position,
               highest_visible_position, first_seen_at)
       SELECT 'orders', worker_id, 4, 6, 7, NOW() FROM worker_nodes`,
    );
    const before = await describePublic(pool);
    expect(before["rows of events"]).toHaveLength(5);
    const options = salsaConnectOptions(family);
    const { applied } = await Tidemill.migrate(url, options);
    expect(applied).not.toEqual([]);
    expect(await describePublic(pool)).toEqual(before);
    const ofOthers = (await readTriggers(pool)).filter(({ on }) => !on.startsWith("tidemill."));
    expect(ofOthers).toEqual([{ on: "events", name: "tidemill_draw_xid_first" }]);
    const schemas = await pool.query(
      `SELECT nspname FROM pg_namespace WHERE nspname !~ '^(pg_|information_schema)' ORDER BY 1`,
    );
    expect(schemas.rows.map((row) => row.nspname)).toEqual(["public", "tidemill"]);
    expect((await Tidemill.migrate(url, options)).applied).toEqual([]);
  });

  it("reads the events of its store, and its store goes on where ours ended", async () => {
    const database = await salsaDatabase(family);
    await Tidemill.migrate(database.url, salsaConnectOptions(family));
    const mill = await database.connect(salsaConnectOptions(family));
    const stream = { type: "Invoice", id: "before-us" };
    const ours = await mill.append(stream, [{ type: "Paid" }], { expectedVersion: 5 });
    const session = await database.session();
    const append = { streamType: "Invoice", streamId: "before-us", count: 1 };
    const [theirs] = await salsaAppend(session, family, append);
    const events = await mill.readStream(stream);
    expect(events.map((event) => event.streamVersion)).toEqual([1n, 2n, 3n, 4n, 5n, 6n, 7n]);
    expect(events.map((event) => event.position)).toEqual([1n, 2n, 3n, 6n, 7n, 8n, 9n]);
    expect([ours.position, theirs]).toEqual([8n, 9n]);
    expect(events[1]!.payload).toEqual(Buffer.from([0x00, 0xff, 0x01]));
    expect(events[0]!.metadata).toEqual({ by: "salsa" });
    expect(events[0]!.correlationId).toBe("correlated");
  });

  it("reads again when another member has moved the checkpoint meanwhile", async () => {
    const cluster = await MixedCluster.create(family, "advisory");
    await cluster.migrate();
    await withoutLeader(cluster);
    const { id } = await cluster.startOurs();
    const { pool, database } = cluster;
    await eventually(async () => {
      const { rowCount } = await pool.query("UPDATE consumer_assignments SET worker_id = $1", [id]);
      expect(rowCount).toBe(CONSUMERS.length);
    });
    await eventually(() => expectEachOnceInOrder(cluster), { everyMs: 100 });
    // As if it had been another's for a moment: handled and saved, and given back.
    const session = await database.session();
    const stream = { streamType: "Invoice", streamId: "between" };
    await session.query("BEGIN");
    await session.query(
      `INSERT INTO events (${family}_type, ${family}_id, ${family}_version, event_id, event_type,
                           payload)
       VALUES ('Invoice', 'elsewhere', 1, gen_random_uuid(), 'Changed', '')`,
    );
    await session.query(
      `INSERT INTO handled (consumer, position, worker, member)
       SELECT consumer_name, max(global_position), $1, 'salsa'
         FROM consumer_checkpoints, events GROUP BY consumer_name`,
      [id],
    );
    await session.query(
      `UPDATE consumer_checkpoints
          SET last_position = (SELECT max(global_position) FROM events)`,
    );
    await session.query("COMMIT");
    await salsaAppend(session, family, { ...stream, count: 2 });
    await eventually(() => expectEachOnceInOrder(cluster), { everyMs: 100 });
    for (const member of cluster.members) expect(member.failure).toBeUndefined();
  });
});
