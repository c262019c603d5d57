import { describe, expect, it } from "vitest";
import { bucketOf } from "../../../src/cluster/ring.ts";
import { failed, queue } from "../../../src/index.ts";
import { testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { gate, range, readColumn } from "./scene.ts";

type Step = { readonly key: string; readonly n: number };
const STEPS = queue<Step>("steps", {
  backoff: { kind: "fixed", baseSeconds: 0 },
  maxAttempts: 100,
});

const step = (key: string, n: number) => ({ payload: { key, n }, partitionKey: key });
const keys = (count: number): string[] => range(count).map((n) => `key ${n}`);

describe("a bulk of keyed tasks", () => {
  it("waits in packs, in which no key comes twice, and is found by its keys", async () => {
    const database = await testDatabase();
    const mill = await database.connect();
    const tasks = range(2).flatMap((n) => keys(50).map((key) => step(key, n)));
    const handles = await mill.enqueueMany(STEPS, tasks);
    const sizes = "SELECT cardinality(ids) FROM tidemill.task_packs ORDER BY id";
    expect(await readColumn<number>(database, sizes)).toEqual([50, 50]);
    const found = await mill.tasks.list({ partitionKey: "key 7" });
    expect(found.map(({ id, payload }) => [id, payload])).toEqual([
      [handles[57]?.id, { key: "key 7", n: 1 }],
      [handles[7]?.id, { key: "key 7", n: 0 }],
    ]);
    expect(await mill.tasks.get(handles[57]?.id ?? "")).toMatchObject({
      partitionKey: "key 7",
      state: "pending",
    });
    expect(await mill.tasks.why(handles[57]?.id ?? "")).toContain("no live worker");
  });

  it("is put together by the owners of its buckets", async () => {
    const database = await testDatabase();
    const mill = await database.connect();
    await mill.enqueue(STEPS, { key: "", n: 0 });
    await database.pool.query(
      `INSERT INTO tidemill.bucket_owners (key_space_id, worker_id, epoch, buckets)
       SELECT 0, gen_random_uuid(), 1, array_agg(bucket)
         FROM generate_series(0, 359) AS bucket
        GROUP BY bucket % 2`,
    );
    await mill.enqueueMany(
      STEPS,
      keys(100).map((key) => step(key, 0)),
    );
    const buckets = "SELECT buckets FROM tidemill.task_packs";
    const parities = (await readColumn<number[]>(database, buckets)).map(
      (all) => new Set(all.map((bucket) => bucket % 2)).size,
    );
    expect(parities).toEqual([1, 1]);
  });

  it("is not opened as a whole by a worker that can run one task of each key", async () => {
    const database = await testDatabase();
    const mill = await database.connect();
    const bulk = range(100).flatMap((n) => keys(25).map((key) => step(key, n)));
    await mill.enqueueMany(STEPS, bulk);
    const packs = "SELECT count(*)::int FROM tidemill.task_packs";
    expect(await readColumn<number>(database, packs)).toEqual([100]);
    const end = gate();
    let started = 0;
    const handler = STEPS.handle(async () => {
      started += 1;
      await end.opened;
    });
    await mill.startWorker({ handlers: [handler], concurrency: 50 });
    await eventually(() => expect(started).toBe(25));
    const fromMs = performance.now();
    const [before = 0] = await readColumn<number>(database, packs);
    await eventually(async () => {
      const [now = 0] = await readColumn<number>(database, packs);
      expect(now).toBeLessThanOrEqual(before - 6);
    });
    // Ten in a second at the most: each may hold another key, and most do not.
    expect(performance.now() - fromMs).toBeGreaterThan(300);
    end.open();
  });

  it("whose task is cancelled leaves the others at their places", async () => {
    const database = await testDatabase();
    const mill = await database.connect();
    const handles = await mill.enqueueMany(
      STEPS,
      keys(30).map((key) => step(key, 0)),
    );
    expect(await mill.tasks.cancel(handles[3]?.id ?? "")).toBe("cancelled");
    const rows = await database.pool.query(
      `SELECT id::text, claim_order::text, partition_key, partition_bucket::int
         FROM tidemill.tasks AS task ORDER BY task.id`,
    );
    const expected = keys(30).map((key, n) => ({
      id: handles[n]?.id,
      claim_order: handles[n]?.id,
      partition_key: key,
      partition_bucket: bucketOf(key),
    }));
    expect(rows.rows).toEqual(expected.filter((_, n) => n !== 3));
  });
});

it("tasks run in the order of their keys, in packs and as rows, through failures", async () => {
  const database = await testDatabase();
  const mill = await database.connect();
  const done = new Map<string, number[]>();
  let failures = 0;
  const handler = STEPS.handle(({ payload: { key, n } }) => {
    const isBad = (bucketOf(key) + 7 * n) % 97 === 0 && failures < 300;
    if (isBad) {
      failures += 1;
      return failed("not now");
    }
    done.set(key, [...(done.get(key) ?? []), n]);
    return undefined;
  });
  const others = await database.connect();
  const options = { concurrency: 50, dispatcherStrategy: "notify" } as const;
  const first = await mill.startWorker({ handlers: [handler], ...options });
  const rounds = 40;
  for (const round of range(rounds)) {
    const bulk = range(4).flatMap((n) => keys(100).map((key) => step(key, round * 6 + n)));
    await mill.enqueueMany(STEPS, bulk);
    for (const n of [4, 5]) {
      for (const key of ["key 3", "key 50"]) {
        const { payload, partitionKey } = step(key, round * 6 + n);
        await mill.enqueue(STEPS, payload, { partitionKey });
      }
    }
    if (round === 15) await others.startWorker({ handlers: [handler], ...options });
    if (round === 30) await first.stop();
  }
  await eventually(async () => {
    const { rows } = await database.pool.query("SELECT FROM tidemill.live_tasks LIMIT 1");
    expect(rows).toHaveLength(0);
  });
  expect(failures).toBeGreaterThan(0);
  expect(done.size).toBe(100);
  for (const [key, all] of done) {
    const inOrder = all.toSorted((a, b) => a - b);
    expect({ key, all }).toEqual({ key, all: inOrder });
    const isSingle = key === "key 3" || key === "key 50";
    expect(all).toHaveLength(rounds * (isSingle ? 6 : 4));
  }
});
