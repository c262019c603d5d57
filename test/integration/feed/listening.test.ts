import { randomBytes } from "node:crypto";
import { describe, expect, it } from "vitest";
import { systemClock } from "../../../src/base/clock.ts";
import { silentLogger } from "../../../src/base/log.ts";
import { Supervisor } from "../../../src/base/supervisor.ts";
import { queue } from "../../../src/index.ts";
import { Feed } from "../../../src/server/feed/feed.ts";
import { ApiKeyAdmin } from "../../../src/server/index.ts";
import { onCleanup, testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { FeedStream } from "../../support/feed-stream.ts";
import { startServerProcess } from "../../support/server-processes.ts";
import { ADMIN, type FeedScene, feedScene, READER, SERVER } from "./scene.ts";

const WORK = queue<number>("work");

const count = async ({ database }: FeedScene): Promise<number> => {
  const { rows } = await database.pool.query<{ n: number }>(
    "SELECT count(*)::int AS n FROM tidemill.feed_changes",
  );
  return rows[0]?.n ?? -1;
};

/** As if so many seconds had passed for whoever asks whether somebody listens. */
const pass = async ({ database }: FeedScene, seconds: number): Promise<void> => {
  await database.pool.query(
    `SELECT setval('tidemill.feed_listening', last_value - $1::bigint)
       FROM tidemill.feed_listening`,
    [seconds * 1_000],
  );
};

const cutReader = async ({ database }: FeedScene): Promise<void> => {
  const { rowCount } = await database.pool.query(
    `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
      WHERE datname = current_database() AND application_name LIKE '% feed'`,
  );
  expect(rowCount).toBe(1);
};

describe("nothing is written", () => {
  it("while nobody listens, and not for long after the last one left", async () => {
    const scene = await feedScene();
    await scene.mill.enqueue(WORK, 1);
    expect(await count(scene)).toBe(0);
    const feed = await scene.listen();
    await scene.mill.enqueue(WORK, 2);
    expect(await count(scene)).toBe(1);
    feed.close();
    await eventually(async () => {
      // Nobody renews it any more.
      const { rows } = await scene.database.pool.query(
        `SELECT FROM pg_stat_activity
          WHERE datname = current_database() AND application_name LIKE '% feed'`,
      );
      expect(rows).toHaveLength(0);
    });
    await pass(scene, 31);
    await scene.mill.enqueue(WORK, 3);
    expect(await count(scene)).toBe(1);
  });
});

describe("an interruption", () => {
  it("is told to those who listened, and they go on", async () => {
    const scene = await feedScene();
    const feed = await scene.listen();
    await scene.mill.enqueue(WORK, 0);
    const { rows } = await scene.database.pool.query<{ lost: string }>(
      "SELECT setval('tidemill.feed_listening', 1), tidemill.enqueue('work', '1')::text AS lost",
    );
    await cutReader(scene); // It would find out within five seconds anyway.
    await feed.until("reset");
    await eventually(() => expect(feed.of("ready")).toHaveLength(2));
    const { id } = await scene.mill.enqueue(WORK, 2);
    await eventually(() => expect(feed.states(id)).toEqual(["pending"]));
    expect(feed.states(rows[0]?.lost ?? "")).toEqual([]);
    const [first, second] = feed.of("ready").map(({ id: place }) => place?.split("-")[0]);
    expect(first).not.toBe(second);
  });

  it("by a crash of the database is told as well", async () => {
    const scene = await feedScene();
    const feed = await scene.listen();
    // What a crash leaves of tables that are not logged.
    await scene.database.pool.query("TRUNCATE tidemill.feed_changes, tidemill.feed_era");
    await feed.until("reset");
    await eventually(() => expect(feed.of("ready")).toHaveLength(2));
    const { id } = await scene.mill.enqueue(WORK, 2);
    await eventually(() => expect(feed.states(id)).toEqual(["pending"]));
  });

  it("is not hidden by somebody who began to listen and was rolled back", async () => {
    const { pool } = await testDatabase();
    const session = await pool.connect();
    const listen = async (seconds = 30): Promise<unknown> =>
      (await session.query("SELECT era FROM tidemill.feed_listen($1, NULL, NULL)", [seconds]))
        .rows[0]?.era;
    const first = await listen();
    expect(await listen()).toBe(first);
    await session.query("SELECT setval('tidemill.feed_listening', 1)");
    await session.query("BEGIN");
    await listen(31); // Not to the same millisecond as the one before, however quick this is.
    await session.query("ROLLBACK");
    const second = await listen();
    session.release();
    expect(second).not.toBe(first);
  });

  it("of the connection of the reader is not noticed", async () => {
    const scene = await feedScene();
    const feed = await scene.listen();
    await cutReader(scene);
    const { id } = await scene.mill.enqueue(WORK, 2);
    await eventually(() => expect(feed.states(id)).toEqual(["pending"]));
    expect(feed.of("reset")).toEqual([]);
  });
});

describe("an old transaction that may have found nobody listening", () => {
  it("delays the first ready, and is told of by the gauge", async () => {
    const { mill, database } = await feedScene();
    await mill.enqueue(WORK, 0);
    const session = await database.session();
    await session.query("BEGIN");
    await session.query("SELECT tidemill.enqueue('work', '1')");
    const feed = new Feed(mill.engine.db, { clock: systemClock, logger: silentLogger });
    const services = new Supervisor([...feed.services]);
    onCleanup(() => services.stop());
    const filter = { tenant: "default", queues: "all", withCluster: false } as const;
    const limits = { clientsMax: 1, tenantClientsMax: 1 };
    const client = feed.hub.subscribe({ filter, after: undefined }, limits);
    const held = (): number => feed.metrics.heldSeconds.value() ?? -1;
    await eventually(() => expect(held()).toBeGreaterThan(0));
    expect(client.phase).toBe("waiting");
    client.cut();
    await eventually(() => expect(held()).toBe(0));
    const another = feed.hub.subscribe({ filter, after: undefined }, limits);
    await eventually(() => expect(held()).toBeGreaterThan(0));
    await session.query("COMMIT");
    await eventually(() => expect([another.phase, held()]).toEqual(["live", 0]));
  });

  it("is named to admins meanwhile, who are told how the cluster is", async () => {
    const { mill, database, url } = await feedScene();
    await mill.enqueue(WORK, 0);
    const session = await database.session();
    const { rows } = await session.query<{ pid: number }>("SELECT pg_backend_pid() AS pid");
    await session.query("BEGIN");
    await session.query("SELECT tidemill.enqueue('work', '1')");
    const admin = await FeedStream.open(url, { token: ADMIN, query: "?view=summary" });
    onCleanup(async () => admin.close());
    const last = (): unknown => admin.of("status").at(-1)?.data["feedHeld"];
    const holder = { pid: rows[0]?.pid, state: "idle in transaction" };
    await eventually(() => expect(last()).toMatchObject({ holders: [holder] }));
    expect(admin.of("ready")).toEqual([]);
    await session.query("COMMIT");
    await admin.until("ready");
    await eventually(() => expect(last()).toBeUndefined());
  });
});

describe("two processes", () => {
  it("tell of each other's changes, and one that is killed leaves nothing behind", async () => {
    const scene = await feedScene();
    await scene.mill.enqueue(WORK, 0);
    const there = await startServerProcess(scene.database.url, SERVER);
    const far = await FeedStream.ready(there.http, { token: READER });
    const near = await scene.listen();
    const sql = await scene.database.pool.query<{ id: string }>(
      "SELECT tidemill.enqueue('work', '1')::text AS id",
    );
    const { id } = await scene.post("/v1/tasks", { queue: "work", payload: 1 });
    for (const stream of [near, far]) {
      for (const one of [id, sql.rows[0]?.id]) {
        await eventually(() => expect(stream.states(String(one))).toEqual(["pending"]));
      }
    }
    near.close();
    await there.kill();
    await far.ended;
    await pass(scene, 31);
    const before = await count(scene);
    await scene.mill.enqueue(WORK, 1);
    expect(await count(scene)).toBe(before);
  });
});

describe("a stream", () => {
  it("ends when its token is revoked or expires, and others go on", async () => {
    const auth = { ...SERVER.auth, revocationSeconds: 0 };
    const scene = await feedScene("test", { tokenCheckSeconds: 0.1, auth });
    const admin = new ApiKeyAdmin(scene.mill.engine.db);
    const grant = { tenant: "default", scopes: ["read"] } as const;
    const revoked = await admin.create(grant);
    const first = await scene.listen({ token: revoked.key.reveal() });
    // Long enough to listen with on a busy machine.
    const short = await admin.create({ ...grant, expiresSeconds: 3 });
    const second = await scene.listen({ token: short.key.reveal() });
    const third = await scene.listen();
    await admin.revoke(revoked.apiKey.id);
    await Promise.all([first.ended, second.ended]);
    const { id } = await scene.mill.enqueue(WORK, 1);
    await eventually(() => expect(third.states(id)).toEqual(["pending"]));
    expect([...first.states(id), ...second.states(id)]).toEqual([]);
  });
});

describe("a login that does not own the tables", () => {
  it("may listen when it may change the era, and not otherwise", async () => {
    const { pool } = await testDatabase();
    const role = `feeder_${randomBytes(4).toString("hex")}`;
    await pool.query(`CREATE ROLE ${role}; GRANT USAGE ON SCHEMA tidemill TO ${role}`);
    const session = await pool.connect();
    const listen = async (): Promise<unknown> =>
      (await session.query("SELECT era FROM tidemill.feed_listen(30, NULL, NULL)")).rowCount;
    await session.query(`SET SESSION AUTHORIZATION ${role}`);
    await expect(listen()).rejects.toThrow(`role "${role}" may not listen to the feed`);
    await pool.query(`GRANT UPDATE ON tidemill.feed_era TO ${role}`);
    expect(await listen()).toBe(1);
    session.release(true);
    await pool.query(`DROP OWNED BY ${role}; DROP ROLE ${role}`);
  });
});
