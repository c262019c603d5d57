import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { SchemaError, Tidemill } from "../../../src/index.ts";
import { onCleanup, type TestDatabase, testDatabase } from "../../support/database.ts";
import { ownServer, startServer } from "../../support/own-server.ts";

/*
 * Servers and schemas on which the gap proof does not hold are refused at the door, with words
 * that say what to do. On each of them a reader would one day skip an event.
 */

async function refusal(database: TestDatabase): Promise<string> {
  const error: unknown = await Tidemill.connect(database.url).then(
    (mill) => mill.close(),
    (reason: unknown) => reason,
  );
  expect(error).toBeInstanceOf(SchemaError);
  return (error as SchemaError).message;
}

describe("connect refuses", () => {
  it.each(["CACHE 32", "CYCLE", "INCREMENT 2"])(
    "S3: a sequence with %s, and says how to repair it",
    async (property) => {
      const database = await testDatabase();
      await database.pool.query(`ALTER SEQUENCE tidemill.events_global_position_seq ${property}`);
      const message = await refusal(database);
      expect(message).toContain("must have CACHE 1, INCREMENT 1 and NO CYCLE");
      const [, repair] = /run: (ALTER SEQUENCE .*)$/.exec(message) ?? [];
      await database.pool.query(repair ?? "");
      await database.connect();
    },
  );

  it.each([
    ["is missing", "DROP TRIGGER tidemill_draw_xid_first ON tidemill.events"],
    ["is disabled", "ALTER TABLE tidemill.events DISABLE TRIGGER tidemill_draw_xid_first"],
    [
      "fires for replication only",
      "ALTER TABLE tidemill.events ENABLE REPLICA TRIGGER tidemill_draw_xid_first",
    ],
  ])("S2: a log whose trigger %s", async (_, change) => {
    const database = await testDatabase();
    await database.pool.query(change);
    expect(await refusal(database)).toMatch(
      /trigger tidemill_draw_xid_first is missing or disabled.*enable it/,
    );
  });

  it("S2: a partition without the trigger, which an insert into it would go around", async () => {
    const database = await testDatabase({ migrated: false });
    await Tidemill.migrate(database.url, { partitioning: { strategy: "native" } });
    await (await Tidemill.connect(database.url)).close();
    const { rows } = await database.pool.query<{ leaf: string }>(
      `SELECT relid::text AS leaf FROM pg_partition_tree('tidemill.events')
        WHERE isleaf ORDER BY 1 LIMIT 1`,
    );
    await database.pool.query(`DROP TRIGGER tidemill_draw_xid_first ON ${rows[0]?.leaf}`);
    expect(await refusal(database)).toContain("or one of its partitions");
  });

  it("a read replica", async () => {
    const primary = await ownServer();
    onCleanup(() => primary.remove());
    const database = await testDatabase({ server: primary.url });
    await primary.stop();
    const copy = join(primary.folder, "replica");
    execFileSync("cp", ["-a", primary.dataDir, copy]);
    writeFileSync(join(copy, "standby.signal"), "");
    const replica = await startServer(copy, {});
    onCleanup(() => replica.stop("immediate"));
    await primary.start();
    const url = new URL(database.url);
    url.port = String(replica.port);
    expect(await refusal({ ...database, url: url.href })).toBe(
      "this is a read replica; use the primary's address",
    );
  });
});
