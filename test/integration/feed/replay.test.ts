import { beforeAll, describe, expect, it } from "vitest";
import { type Statement, statement } from "../../../src/db/statement.ts";
import { queue } from "../../../src/index.ts";
import { FeedBroom } from "../../../src/tasks/feed-broom.ts";
import { forgetChanges } from "../../../src/tasks/sql/feed.ts";
import { promoteTasks } from "../../../src/tasks/sql/housekeeping.ts";
import { eventually } from "../../support/eventually.ts";
import { FeedStream } from "../../support/feed-stream.ts";
import { range } from "../tasks/scene.ts";
import { type FeedScene, feedScene, READER } from "./scene.ts";

const WORK = queue<number>("work");
/** As of a table that is large. */
const BY_INDEX = statement("test_by_index", "SET LOCAL enable_seqscan = off");
/** Of the index, read by the session of late: dead ones as well. */
const ENTRIES = statement(
  "test_entries",
  `SELECT pg_stat_get_xact_tuples_returned('{schema}.feed_changes_pkey'::regclass)::int AS entries`,
);
let scene: FeedScene;

beforeAll(async () => {
  scene = await feedScene("file");
});

const idsOf = (stream: FeedStream): unknown[] => stream.of("task").map(({ data }) => data["id"]);

const bulk = async (count: number): Promise<string[]> => {
  const handles = await scene.mill.enqueueMany(
    WORK,
    range(count).map((payload) => ({ payload })),
  );
  return handles.map(({ id }) => id);
};

it("a row has at most a thousand tasks, however many a statement changes", async () => {
  const own = await feedScene();
  const { mill, database } = own;
  await own.listen();
  const later = range(2_500).map((payload) => ({ payload, delaySeconds: 3_600 }));
  await mill.enqueueMany(queue<number>("later"), later);
  await database.pool.query("UPDATE tidemill.tasks SET run_at = NOW() WHERE queue = 'later'");
  await promoteTasks(mill.engine.db, 5_000);
  // The leader may have promoted some of them, and may still be at it.
  const scheduled = "SELECT FROM tidemill.tasks WHERE queue = 'later' AND state = 'scheduled'";
  await eventually(async () => expect((await database.pool.query(scheduled)).rows).toEqual([]));
  const { rows } = await database.pool.query<{ state: string; sizes: number[] }>(
    `SELECT state, array_agg(cardinality(ids) ORDER BY position) AS sizes
       FROM tidemill.feed_changes WHERE queue = 'later' GROUP BY state`,
  );
  for (const { sizes } of rows) {
    expect(Math.max(...sizes)).toBeLessThanOrEqual(1_000);
    expect(sizes.reduce((sum, size) => sum + size, 0)).toBe(2_500);
  }
  expect(rows.map(({ state }) => state).sort()).toEqual(["pending", "scheduled"]);
});

describe("a client that comes back", () => {
  it("is told what it missed, and nothing twice, from the middle of a bulk", async () => {
    const first = await scene.listen();
    const ids = await bulk(250);
    await eventually(() => expect(idsOf(first)).toEqual(ids));
    const middle = first.of("task")[136]?.id ?? "";
    first.close();
    ids.push(...(await bulk(60)), (await scene.mill.enqueue(WORK, 1)).id);
    const second = await scene.listen({ lastEventId: middle });
    expect(second.messages[0]).toEqual({
      id: middle,
      event: "ready",
      data: { after: middle, replay: true },
    });
    ids.push(...(await bulk(30)));
    await eventually(() => expect(idsOf(second)).toEqual(ids.slice(137)));
  });

  it("may say so in the address, and finds another server", async () => {
    const first = await scene.listen();
    const [one] = await bulk(1);
    await eventually(() => expect(idsOf(first)).toEqual([one]));
    const other = await scene.another();
    const two = await bulk(30);
    const second = await other.listen({ query: `?after=${first.lastId}` });
    await eventually(() => expect(idsOf(second)).toEqual(two));
    const [three] = await bulk(1);
    await eventually(() => expect(idsOf(second)).toEqual([...two, three]));
    await eventually(() => expect(idsOf(first)).toEqual([one, ...two, three]));
  });

  it("finds a server again that was restarted", async () => {
    const own = await feedScene();
    const first = await own.listen();
    const one = await own.mill.enqueue(WORK, 1);
    await eventually(() => expect(idsOf(first)).toEqual([one.id]));
    await own.server.stop();
    await first.ended;
    const two = await own.mill.enqueue(WORK, 2);
    const next = await own.another();
    const second = await next.listen({ lastEventId: first.lastId ?? "" });
    await eventually(() => expect(idsOf(second)).toEqual([two.id]));
    expect(second.of("reset")).toEqual([]);
  });
});

describe("a place that is no longer kept", () => {
  const resets = async (lastEventId: string): Promise<void> => {
    const stream = await scene.listen({ lastEventId });
    const [reset, ready] = stream.messages;
    expect(reset?.event).toBe("reset");
    expect(reset?.data["reason"]).toMatch(/no longer kept; read the present state again/);
    expect(ready?.data["replay"]).toBe(false);
    const { id } = await scene.mill.enqueue(WORK, 1);
    await eventually(() => expect(stream.states(id)).toEqual(["pending"]));
  };

  it("of another era is said so, and the stream goes on", async () => {
    await resets("0123456789ab-17-1");
  });

  it("that was never given is said so", async () => {
    const stream = await scene.listen();
    const [era] = (stream.lastId ?? "").split("-");
    await resets(`${era}-999999999999`);
  });

  it("because it is too old is said so, whatever the server still has in memory", async () => {
    const stream = await scene.listen();
    const place = stream.lastId ?? "";
    await bulk(30);
    await eventually(() => expect(idsOf(stream)).toHaveLength(30));
    await forgetChanges(scene.mill.engine.db, 0, 1_000);
    const { rows } = await scene.database.pool.query("SELECT FROM tidemill.feed_changes");
    expect(rows).toHaveLength(0);
    const other = await scene.another();
    const late = await FeedStream.open(other.url, { token: READER, lastEventId: place });
    await late.until("reset");
    await late.until("ready");
    late.close();
  });

  it.each(["what", "0123456789ab", "0123456789ab-1-0", "0123456789ab-1-1-1"])(
    "and cannot be one (%s) is refused",
    async (lastEventId) => {
      await expect(scene.listen({ lastEventId })).rejects.toThrow(
        /^400: .*Last-Event-ID and after must be an id that this feed has given/,
      );
    },
  );
});

describe("changes", () => {
  it("are removed when they are old, so many at a time, lowest first", async () => {
    const own = await feedScene();
    await own.listen();
    for (const payload of range(7)) await own.mill.enqueue(WORK, payload);
    const { db } = own.mill.engine;
    expect(await forgetChanges(db, 600, 100)).toMatchObject({ count: 0 });
    expect(await forgetChanges(db, 0, 5)).toMatchObject({ count: 5 });
    const { rows } = await own.database.pool.query<{ position: string; floor: string }>(
      `SELECT min(position) AS position, (SELECT floor FROM tidemill.feed_era) AS floor
         FROM tidemill.feed_changes`,
    );
    expect(Number(rows[0]?.position)).toBe(Number(rows[0]?.floor) + 1);
  });

  it("that were removed are not walked over again while an old snapshot is open", async () => {
    const own = await feedScene();
    await own.listen();
    const { pool } = own.database;
    const { db } = own.mill.engine;
    const add = async (count: number): Promise<void> => {
      await pool.query(
        `INSERT INTO tidemill.feed_changes (tenant, queue, state, attempt, ids, at)
         SELECT 'default', 'work', 'pending', 0, ARRAY[n], NOW() - INTERVAL '1 hour'
           FROM generate_series(1, $1) AS n`,
        [count],
      );
    };
    const left = async (): Promise<number> =>
      (await pool.query("SELECT FROM tidemill.feed_changes")).rowCount ?? 0;
    const late = await own.database.session();
    await late.query("BEGIN");
    await late.query("INSERT INTO tidemill.feed_changes (kind, data) VALUES ('gap', '{}')");
    await add(12_000);
    const old = await own.database.session();
    await old.query("BEGIN ISOLATION LEVEL REPEATABLE READ");
    await old.query("SELECT FROM tidemill.feed_changes LIMIT 1");

    let entries = 0;
    const broom = new FeedBroom({
      query: <Row>(text: Statement, values?: readonly unknown[]) =>
        db.transaction(async (tx) => {
          await tx.query(BY_INDEX);
          const [before] = await tx.query<{ entries: number }>(ENTRIES);
          const rows = await tx.query<Row>(text, values);
          const [after] = await tx.query<{ entries: number }>(ENTRIES);
          entries += (after?.entries ?? Infinity) - (before?.entries ?? 0);
          return rows;
        }),
    });
    for (const _ of range(3)) await broom.sweep(600);
    expect(await left()).toBe(0);
    // Whoever wrote before them commits behind them: they are not passed before it has.
    await late.query("UPDATE tidemill.feed_changes SET at = NOW() - INTERVAL '1 hour'");
    await late.query("COMMIT");
    expect(await left()).toBe(1);
    for (const _ of range(2)) await broom.sweep(600);
    expect(await left()).toBe(0);

    await add(10);
    entries = 0;
    await broom.sweep(600);
    expect(await left()).toBe(0);
    expect(entries).toBeGreaterThanOrEqual(10);
    expect(entries).toBeLessThan(100);
  });
});
