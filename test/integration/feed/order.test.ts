import { beforeAll, describe, expect, it } from "vitest";
import { completed, queue } from "../../../src/index.ts";
import { eventually } from "../../support/eventually.ts";
import { FeedStream } from "../../support/feed-stream.ts";
import { BRISK, range } from "../tasks/scene.ts";
import { type FeedScene, feedScene, READER } from "./scene.ts";

const WORK = queue<number>("work");
let scene: FeedScene;

beforeAll(async () => {
  scene = await feedScene("file");
  await scene.mill.enqueue(WORK, 0);
});

const enqueued = "SELECT tidemill.enqueue('work', '1')::text AS id";

describe("transactions that overlap", () => {
  it("are told in the order of their changes when the first commits last", async () => {
    const feed = await scene.listen();
    const slow = await scene.database.session();
    await slow.query("BEGIN");
    const { rows } = await slow.query<{ id: string }>(enqueued);
    const first = rows[0]?.id ?? "";
    const later = await Promise.all(range(5).map(() => scene.mill.enqueue(WORK, 1)));
    // Everything behind it is held, so that nobody who goes on from here passes it.
    const other = await scene.listen();
    expect(later.flatMap(({ id }) => [...feed.states(id), ...other.states(id)])).toEqual([]);
    await slow.query("COMMIT");
    const all = [first, ...later.map(({ id }) => id)];
    for (const stream of [feed, other]) {
      await eventually(() => {
        for (const id of all) expect(stream.states(id)).toEqual(["pending"]);
      });
    }
    expect(feed.of("task").map(({ data }) => data["id"])[0]).toBe(first);
  });

  it("that are rolled back are passed, and hold nobody up", async () => {
    const feed = await scene.listen();
    const gone = await scene.database.session();
    await gone.query("BEGIN");
    await gone.query(enqueued);
    const { id } = await scene.mill.enqueue(WORK, 1);
    await gone.query("ROLLBACK");
    await eventually(() => expect(feed.states(id)).toEqual(["pending"]));
  });

  it("that are rolled back while another one goes on are passed when that has ended", async () => {
    const feed = await scene.listen();
    const open = await scene.database.session();
    const gone = await scene.database.session();
    await open.query("BEGIN");
    await gone.query("BEGIN");
    await gone.query(enqueued);
    const { rows } = await open.query<{ id: string }>(enqueued);
    await gone.query("ROLLBACK");
    const { id } = await scene.mill.enqueue(WORK, 1);
    await open.query("COMMIT");
    await eventually(() => expect(feed.states(id)).toEqual(["pending"]));
    expect(feed.states(rows[0]?.id ?? "")).toEqual(["pending"]);
  });

  it("are told in order although their snapshot is older than the listening", async () => {
    const fresh = await feedScene();
    const session = await fresh.database.session();
    await fresh.mill.enqueue(WORK, 0);
    await session.query("BEGIN ISOLATION LEVEL REPEATABLE READ");
    await session.query("SELECT count(*) FROM tidemill.tasks");
    const feed = await fresh.listen();
    const { rows } = await session.query<{ id: string }>(enqueued);
    await session.query("COMMIT");
    await eventually(() => expect(feed.states(rows[0]?.id ?? "")).toEqual(["pending"]));
  });
});

describe("who begins to listen", () => {
  it("is told that it is complete only when those who did not know of it have ended", async () => {
    const fresh = await feedScene();
    await fresh.mill.enqueue(WORK, 0);
    const early = await fresh.database.session();
    await early.query("BEGIN");
    await early.query(enqueued); // Nobody listens: it writes nothing.
    const stream = await FeedStream.open(fresh.url, { token: READER });
    await eventually(async () => {
      const { rows } = await fresh.database.pool.query("SELECT FROM tidemill.feed_era");
      expect(rows).toHaveLength(1);
    });
    const { id } = await fresh.mill.enqueue(WORK, 1);
    const { rows } = await fresh.database.pool.query<{ settled: string | null }>(
      "SELECT settled FROM tidemill.feed_era",
    );
    expect(rows).toEqual([{ settled: null }]);
    expect(stream.of("ready")).toEqual([]);
    await early.query("COMMIT");
    await stream.until("ready");
    const last = await fresh.mill.enqueue(WORK, 2);
    await eventually(() => expect(stream.states(last.id)).toEqual(["pending"]));
    expect(stream.states(id)).toEqual([]); // It was there before the stream was ready.
    stream.close();
  });

  it("while there is load misses nothing behind that", async () => {
    const fresh = await feedScene();
    const ids: string[] = [];
    const handled = WORK.handle(() => completed());
    await fresh.mill.startWorker({ ...BRISK, handlers: [handled], concurrency: 50 });
    const over = new AbortController();
    const load = (async () => {
      while (!over.signal.aborted) {
        // Until the test has seen enough.
        const many = range(40).map((payload) => ({ payload }));
        const [one, bulk] = await Promise.all([
          fresh.mill.enqueue(WORK, 1, { partitionKey: `k${ids.length % 7}` }),
          fresh.mill.enqueueMany(WORK, many),
        ]);
        ids.push(one.id, ...bulk.map(({ id }) => id));
      }
    })();
    await eventually(() => expect(ids.length).toBeGreaterThan(500));
    const feed = await fresh.listen();
    const from = ids.length;
    await eventually(() => expect(ids.length).toBeGreaterThan(from + 1_500));
    over.abort();
    await load;
    // What was enqueued by calls that began after it was ready is complete from its first change.
    const later = ids.slice(from + 200);
    const statesOfAll = (): Map<unknown, unknown[]> => {
      const states = new Map<unknown, unknown[]>();
      for (const { data } of feed.of("task")) {
        states.set(data["id"], [...(states.get(data["id"]) ?? []), data["state"]]);
      }
      return states;
    };
    // The last one to be enqueued need not be the last to end.
    const hasEnded = (states: Map<unknown, unknown[]>): boolean =>
      later.every((id) => states.get(id)?.includes("completed"));
    await eventually(() => expect(hasEnded(statesOfAll())).toBe(true));
    const states = statesOfAll();
    for (const id of later) expect(states.get(id)).toEqual(["pending", "running", "completed"]);
    expect(feed.of("lagged")).toEqual([]);
  });
});
