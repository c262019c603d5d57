import { type } from "arktype";
import * as v from "valibot";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { bucketOf } from "../../../src/cluster/ring.ts";
import { completed, InvalidInputError, type Queue, queue, type Task } from "../../../src/index.ts";
import { testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { BRISK, inTransaction, range, readColumn, readStored } from "./scene.ts";

const KEYS = [
  "order:1",
  "a",
  "Größe",
  "naïve café",
  "日本語",
  "👩‍🚀🚀",
  "İstanbul",
  " ",
  "x".repeat(1024),
];

describe("enqueue", () => {
  it("stores one task with what was asked for, and the defaults for the rest", async () => {
    const db = await testDatabase();
    const mill = await db.connect();
    const mails = queue<{ to: string }>("mails", { maxAttempts: 7, priority: "low" });
    const { id } = await mill.enqueue(mails, { to: "ada" });
    const other = await mill.enqueue(
      mails,
      { to: "bob" },
      { kind: "welcome", priority: "high", maxAttempts: 2, tenant: "acme", partitionKey: "bob" },
    );
    expect(await mill.tasks.get(id)).toMatchObject({
      id,
      state: "pending",
      queue: "mails",
      tenant: "default",
      kind: undefined,
      priority: 2,
      partitionKey: undefined,
      payload: { to: "ada" },
      contentType: "application/json",
      attempt: 0,
      maxAttempts: 7,
    });
    expect(await mill.tasks.get(other.id)).toMatchObject({
      tenant: "acme",
      kind: "welcome",
      priority: 8,
      partitionKey: "bob",
      maxAttempts: 2,
    });
    expect(await readStored(db)).toEqual({ tasks: 2, tally: 2, keys: 0 });
  });

  it("knows the names of priorities", async () => {
    const db = await testDatabase();
    const mill = await db.connect();
    const mails = queue("mails");
    const priorities = ["high", "normal", "low", 0, 9] as const;
    const tasks = priorities.map((priority) => ({ payload: null, priority }));
    const handles = await mill.enqueueMany(mails, tasks);
    const views = await Promise.all(handles.map(({ id }) => mill.tasks.get(id)));
    expect(views.map(({ priority }) => priority)).toEqual([8, 5, 2, 0, 9]);
  });

  it("stores many of mixed shapes in one statement, with ids and claims in order", async () => {
    const db = await testDatabase();
    const mill = await db.connect();
    const mails = queue<{ n: number }>("mails");
    const handles = await mill.enqueueMany(
      mails,
      range(2_000).map((n) => ({
        payload: { n },
        priority: n % 10,
        ...(n % 3 === 0 ? { partitionKey: `key:${n % 7}` } : {}),
        ...(n % 5 === 0 ? { kind: `kind:${n % 11}` } : {}),
      })),
    );
    const ids = handles.map(({ id }) => Number(id));
    expect(ids).toEqual(ids.toSorted((a, b) => a - b));
    const { rows } = await db.pool.query<{ n: number }>(
      `SELECT (payload::jsonb ->> 'n')::int AS n FROM tidemill.tasks ORDER BY claim_order`,
    );
    expect(rows.map(({ n }) => n)).toEqual(range(2_000));
    const xids = await readColumn(db, "SELECT DISTINCT xmin::text FROM tidemill.tasks");
    expect(xids).toHaveLength(1);
    expect(await readStored(db)).toMatchObject({ tasks: 2_000, tally: 2_000 });
  });

  it("stores nothing for an empty list", async () => {
    const db = await testDatabase();
    const mill = await db.connect();
    expect(await mill.enqueueMany(queue("mails"), [])).toEqual([]);
    expect(await readStored(db)).toEqual({ tasks: 0, tally: 0, keys: 0 });
  });

  it("stores a bulk in which every task has options of its own", async () => {
    const db = await testDatabase();
    const mill = await db.connect();
    const tasks = range(33_000).map((n) => ({ payload: n, delaySeconds: 1_000 + n }));
    const handles = await mill.enqueueMany(queue("mails"), tasks);
    expect(handles).toHaveLength(33_000);
  });
});

describe("enqueue in a caller's transaction", () => {
  it("leaves nothing after a rollback, and the next task of that lane is found", async () => {
    const db = await testDatabase();
    const mill = await db.connect();
    const mails = queue("mails");
    await inTransaction(db, "ROLLBACK", async (tx) => {
      await mill.enqueue(mails, 1, { tx, idempotencyKey: "once" });
      await mill.enqueue(mails, 2, { tx, tenant: "new", priority: 1, partitionKey: "key" });
    });
    expect(await readStored(db)).toEqual({ tasks: 0, tally: 0, keys: 0 });
    const seen: unknown[] = [];
    const handler = mails.handle((task) => void seen.push(task.payload));
    await mill.startWorker({ ...BRISK, handlers: [handler] });
    await mill.enqueue(mails, 3, { tenant: "new", priority: 1 });
    await eventually(() => expect(seen).toEqual([3]));
  });
});

describe("enqueue from SQL", () => {
  it("stores what the library would, and workers run it", async () => {
    const db = await testDatabase();
    const mill = await db.connect();
    const mails = queue("mails", { maxAttempts: 3, priority: 4 });
    const seen: Pick<Task, "id" | "kind" | "payload" | "priority" | "tenant">[] = [];
    const handler = mails.handle(({ id, kind, payload, priority, tenant }) => {
      seen.push({ id, kind, payload, priority, tenant });
    });
    await mill.startWorker({ ...BRISK, handlers: [handler] });
    const [plain] = await readColumn<string>(
      db,
      `SELECT tidemill.enqueue('mails', '{"to":"ada"}')`,
    );
    const [full] = await readColumn<string>(
      db,
      `SELECT tidemill.enqueue('mails', '[1]', kind => 'k', priority => 9, tenant => 'acme',
                               partition_key => 'key', max_attempts => 1)`,
    );
    await eventually(() => expect(seen).toHaveLength(2));
    expect(seen.toSorted((a, b) => Number(a.id) - Number(b.id))).toEqual([
      { id: plain, kind: undefined, payload: { to: "ada" }, priority: 4, tenant: "default" },
      { id: full, kind: "k", payload: [1], priority: 9, tenant: "acme" },
    ]);
    await eventually(async () => {
      expect((await mill.tasks.get(plain ?? "")).maxAttempts).toBe(3);
      expect((await mill.tasks.get(full ?? "")).maxAttempts).toBe(1);
    });
  });

  it("puts a key into the bucket and the lane where the library puts it", async () => {
    const db = await testDatabase();
    const mill = await db.connect();
    const mails = queue("mails");
    for (const partitionKey of KEYS) {
      await mill.enqueue(mails, 1, { partitionKey });
      await db.pool.query("SELECT tidemill.enqueue('mails', '1', partition_key => $1)", [
        partitionKey,
      ]);
    }
    const { rows } = await db.pool.query<{ key: string; buckets: number[]; lanes: number }>(
      `SELECT partition_key AS key, array_agg(DISTINCT partition_bucket) AS buckets,
              count(DISTINCT lane)::int AS lanes
         FROM tidemill.tasks GROUP BY partition_key`,
    );
    expect(rows).toHaveLength(KEYS.length);
    for (const { key, buckets, lanes } of rows) {
      expect([key, buckets, lanes]).toEqual([key, [bucketOf(key)], 1]);
    }
    const keys = range(500).map((n) => `${n.toString(36)}·ü${String.fromCodePoint(0x1f600 + n)}`);
    const buckets = await readColumn<number>(
      db,
      `SELECT tidemill.bucket_of(key)
         FROM unnest($1::text[]) WITH ORDINALITY AS k(key, n) ORDER BY n`,
      [keys],
    );
    expect(buckets).toEqual(keys.map((key) => bucketOf(key)));
  });

  it("stands and falls with its transaction", async () => {
    const db = await testDatabase();
    const mill = await db.connect();
    await mill.enqueue(queue("mails"), 0);
    await inTransaction(db, "ROLLBACK", (tx) => tx.query("SELECT tidemill.enqueue('mails', '1')"));
    expect(await readStored(db)).toMatchObject({ tasks: 1, tally: 1 });
  });
});

describe("what a handler gets", () => {
  it("is the bytes that were given, with their content type", async () => {
    const db = await testDatabase();
    const mill = await db.connect();
    const blobs = queue<Uint8Array>("blobs");
    const seen: unknown[] = [];
    const handler = blobs.handle(({ bytes, payload, contentType }) => {
      seen.push([bytes, payload, contentType]);
    });
    const every = Buffer.from(range(256));
    await mill.enqueue(blobs, every, { contentType: "image/png" });
    await mill.enqueue(blobs, new Uint8Array([30, 0, 30]));
    await mill.startWorker({ ...BRISK, handlers: [handler] });
    const few = Buffer.from([30, 0, 30]);
    await eventually(() =>
      expect(seen).toEqual([
        [every, every, "image/png"],
        [few, few, "application/octet-stream"],
      ]),
    );
  });

  it("is no bytes when none were given", async () => {
    const db = await testDatabase();
    const mill = await db.connect();
    const { id } = await mill.enqueue(queue("blobs"), new Uint8Array(0));
    expect((await mill.tasks.get(id)).payload).toEqual(Buffer.alloc(0));
  });

  it("counts the bytes of a payload, not of what they are sent as", async () => {
    const db = await testDatabase();
    const mill = await db.connect();
    const blobs = queue("blobs", { payloadBytesMax: 1_000 });
    const { id } = await mill.enqueue(blobs, Buffer.alloc(1_000, 7));
    expect((await mill.tasks.get(id)).payload).toEqual(Buffer.alloc(1_000, 7));
    await expect(mill.enqueue(blobs, Buffer.alloc(1_001))).rejects.toThrow("1001 bytes");
  });

  it("is any JSON as it was, with odd characters", async () => {
    const db = await testDatabase();
    const mill = await db.connect();
    const mails = queue("mails");
    const odd = "\u001e\u0000\\,{}\"'";
    const payloads = [null, 0, "", odd, { ключ: ["👩‍🚀", "\ud800"] }, [], false];
    const seen: unknown[] = [];
    await mill.enqueueMany(
      mails,
      payloads.map((payload) => ({ payload })),
    );
    await mill.startWorker({
      ...BRISK,
      handlers: [mails.handle((task) => void seen.push(task.payload))],
    });
    await eventually(() => expect(seen).toEqual(payloads));
  });

  it("names the trace that enqueued it", async () => {
    const db = await testDatabase();
    const mill = await db.connect();
    const mails = queue("mails");
    const traceParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    const seen: unknown[] = [];
    const handler = mails.handle((task) => void seen.push([task.traceParent, task.traceState]));
    await mill.enqueue(mails, 1, { traceParent, traceState: "vendor=1" });
    await mill.enqueue(mails, 2);
    await mill.startWorker({ ...BRISK, handlers: [handler] });
    await eventually(() =>
      expect(seen).toEqual([
        [traceParent, "vendor=1"],
        [undefined, undefined],
      ]),
    );
  });
});

const zod = queue("typed", { schema: z.object({ n: z.int(), at: z.coerce.date<string>() }) });
const valibot = queue("typed", {
  schema: v.object({
    n: v.pipe(v.number(), v.integer()),
    at: v.pipe(
      v.string(),
      v.transform((text) => new Date(text)),
    ),
  }),
});
const arktype = queue("typed", { schema: type({ n: "number.integer", at: "string.date.parse" }) });

type Typed = Queue<{ n: number; at: Date }, unknown, { n: number; at: string }>;
const libraries: readonly (readonly [string, Typed])[] = [
  ["zod", zod],
  ["valibot", valibot],
  ["arktype", arktype],
];

describe.each(libraries)("a queue with a schema of %s", (_library, typed) => {
  it("refuses at enqueue what does not fit, and says where", async () => {
    const db = await testDatabase();
    const mill = await db.connect();
    const enqueued = mill.enqueue(typed, { n: 1.5, at: "2026-01-01T00:00:00Z" });
    await expect(enqueued).rejects.toThrow(InvalidInputError);
    await expect(enqueued).rejects.toThrow(
      /payload does not fit the schema of queue "typed": .*n\b/,
    );
    const good = { payload: { n: 1, at: "2026-01-01T00:00:00Z" } };
    const bad = { payload: { n: 0.5, at: "2026-01-01T00:00:00Z" } };
    await expect(mill.enqueueMany(typed, [good, bad])).rejects.toThrow(/^task 1: /);
    expect(await readStored(db)).toEqual({ tasks: 0, tally: 0, keys: 0 });
  });

  it("gives its handler what the schema makes of the payload, once", async () => {
    const db = await testDatabase();
    const mill = await db.connect();
    const seen: unknown[] = [];
    const handler = typed.handle((task) => {
      seen.push(task.payload);
      return completed();
    });
    await mill.startWorker({ ...BRISK, handlers: [handler] });
    const { id } = await mill.enqueue(typed, { n: 1, at: "2026-01-01T00:00:00Z" });
    await eventually(() => expect(seen).toEqual([{ n: 1, at: new Date("2026-01-01T00:00:00Z") }]));
    const { payload } = await mill.tasks.get(id);
    expect(payload).toEqual({ n: 1, at: "2026-01-01T00:00:00Z" });
  });

  it("dead-letters a stored payload that no longer fits, with the message, unrun", async () => {
    const db = await testDatabase();
    const mill = await db.connect();
    const old = queue<{ n: number; at?: string }>("typed");
    const { id } = await mill.enqueue(old, { n: 0.5, at: "2026-01-01T00:00:00Z" });
    let runs = 0;
    const handler = typed.handle(() => void (runs += 1));
    await mill.startWorker({ ...BRISK, handlers: [handler] });
    await eventually(async () => expect((await mill.tasks.get(id)).state).toBe("dead"));
    const { cause, reason } = await mill.tasks.get(id);
    expect(cause).toBe("invalid_payload");
    expect(reason).toMatch(/^the payload of queue "typed" does not fit its schema: .*n\b/);
    expect(await mill.tasks.failures(id)).toMatchObject([{ attempt: 1, reason }]);
    expect(runs).toBe(0);
  });

  it("refuses bytes at enqueue, which no claim would accept", async () => {
    const db = await testDatabase();
    const mill = await db.connect();
    await expect(mill.enqueue(typed, Buffer.from("{}"))).rejects.toThrow(InvalidInputError);
  });
});
