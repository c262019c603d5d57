import { beforeEach, describe, expect, it } from "vitest";
import { z } from "zod";
import { queue, RemoteError } from "../../../src/client/index.ts";
import { eventually } from "../../support/eventually.ts";
import { cable, MAILS_ONLY, producerOf, type Scene, scene, workerOf } from "./scene.ts";

const mails = queue<{ to: string }>("mails");
const orders = queue("orders", { schema: z.object({ total: z.number() }) });

let server: Scene;

beforeEach(async () => {
  server = await scene();
});

const stored = async (): Promise<Record<string, unknown>[]> => {
  const { rows } = await server.database.pool.query<Record<string, unknown>>(
    "SELECT * FROM tidemill.live_tasks ORDER BY id",
  );
  return rows;
};
const payloads = async (): Promise<unknown[]> =>
  (await stored()).map(({ payload }) => JSON.parse(String(payload)) as unknown);
const numbered = (count: number): { payload: { to: string } }[] =>
  Array.from({ length: count }, (_, index) => ({ payload: { to: String(index) } }));

describe("a producer", () => {
  it("stores tasks with their options, and says their ids when they are durable", async () => {
    const producer = await producerOf({ url: server.producer });
    const plain = await producer.enqueue(mails, { to: "a" });
    const rich = await producer.enqueue(
      mails,
      { to: "b" },
      {
        kind: "welcome",
        priority: "high",
        partitionKey: "b",
        delaySeconds: 60,
        maxAttempts: 3,
        backoff: { kind: "fixed", baseSeconds: 7 },
        timeoutSeconds: 9,
        traceParent: "00-1-2-01",
      },
    );
    const bytes = await producer.enqueue(mails, Buffer.from([0, 255]), { contentType: "x/y" });
    expect(await stored()).toMatchObject([
      { id: plain.id, queue: "mails", tenant: "acme", priority: 5, state: "pending" },
      {
        id: rich.id,
        kind: "welcome",
        priority: 8,
        partition_key: "b",
        state: "scheduled",
        max_attempts: 3,
        options: {
          backoff: { kind: "fixed", baseSeconds: 7 },
          timeoutSeconds: 9,
          traceParent: "00-1-2-01",
        },
      },
      { id: bytes.id, content_type: "x/y" },
    ]);
    expect(plain.queue).toBe("mails");
  });

  it("checks payloads before it sends them, and stores what was given", async () => {
    const producer = await producerOf({ url: server.producer });
    await producer.enqueue(orders, { total: 1 });
    // @ts-expect-error: the payload has no total.
    await expect(producer.enqueue(orders, { sum: 1 })).rejects.toThrow(/total/);
    await expect(producer.enqueue(orders, Buffer.from("x"))).rejects.toThrow(/bytes cannot fit/);
    const bad = [{ payload: { total: 1 } }, { payload: { total: "2" as unknown as number } }];
    await expect(producer.enqueueEach(orders, bad)).rejects.toThrow(/task 1: .*total/);
    expect(await payloads()).toHaveLength(1);
  });

  it("sends what is enqueued together in few messages, in its order", async () => {
    const producer = await producerOf({ url: server.producer });
    const done = await Promise.all(
      numbered(1_000).map(({ payload }) => producer.enqueue(mails, payload)),
    );
    expect(new Set(done.map(({ id }) => id)).size).toBe(1_000);
    const ran: string[] = [];
    await workerOf({
      url: server.worker,
      concurrency: 1,
      batchSize: 200,
      handlers: [mails.handle(({ payload }) => void ran.push(payload.to))],
    });
    await eventually(() => expect(ran).toHaveLength(1_000));
    expect(ran).toEqual(numbered(1_000).map(({ payload }) => payload.to));
    // 1,000 messages would be 1,000 commits or close to it.
    const commits = server.server.metrics.createCommit.text();
    expect(Number(/_count (\d+)/.exec(commits)?.[1])).toBeLessThan(50);
  });

  it("stores many all or none, or each for itself", async () => {
    const producer = await producerOf({ url: server.producer, token: MAILS_ONLY });
    const ids = (await producer.enqueueMany(mails, numbered(3))).map(({ id }) => id);
    expect((await stored()).map(({ id }) => id)).toEqual(ids);
    const bad = { payload: { to: "x" }, webhook: "no address" };
    await expect(producer.enqueueMany(mails, [...numbered(2), bad])).rejects.toThrow(/webhook/);
    expect(await stored()).toHaveLength(3);
    const results = await producer.enqueueEach(mails, [...numbered(2), bad]);
    expect(results.map(({ error }) => error?.code)).toEqual([
      undefined,
      undefined,
      "TM_INVALID_INPUT",
    ]);
    expect(await stored()).toHaveLength(5);
    await expect(producer.enqueue(queue("secrets"), 1)).rejects.toMatchObject({
      code: "TM_FORBIDDEN",
    });
    await expect(producer.enqueueMany(mails, numbered(1_001))).rejects.toThrow(/enqueueEach/);
    expect(await producer.enqueueMany(mails, [])).toEqual([]);
  });

  it("tells keys of the caller's own that were used for another task", async () => {
    const producer = await producerOf({ url: server.producer });
    const first = await producer.enqueue(mails, { to: "a" }, { idempotencyKey: "k" });
    expect(await producer.enqueue(mails, { to: "a" }, { idempotencyKey: "k" })).toEqual(first);
    const other = producer.enqueue(mails, { to: "b" }, { idempotencyKey: "k" });
    await expect(other).rejects.toBeInstanceOf(RemoteError);
    await expect(other).rejects.toMatchObject({ code: "TM_IDEMPOTENCY_CONFLICT" });
  });

  it("refuses what no message can hold, and goes on", async () => {
    const producer = await producerOf({ url: server.producer });
    const large = queue<string>("large", { payloadBytesMax: 256 * 1024 * 1024 });
    const huge = "x".repeat(5 * 1024 * 1024);
    await expect(producer.enqueue(large, huge)).rejects.toThrow(/over the 4194304 of one message/);
    await expect(producer.enqueue(mails, { to: huge })).rejects.toThrow(/over the 1048576/);
    await producer.enqueue(mails, { to: "small" });
    expect(await payloads()).toEqual([{ to: "small" }]);
  });

  it("lets callers wait while too much is under way", async () => {
    const line = await cable(server.producer);
    const producer = await producerOf({ url: line.address, windowTasks: 10, withinSeconds: 15 });
    line.loseAnswers(true);
    const calls = numbered(50).map(({ payload }) => producer.enqueue(mails, payload));
    await eventually(async () => expect(await stored()).toHaveLength(10));
    expect(producer.load).toMatchObject({ tasks: 10, waiting: 40 });
    line.loseAnswers(false);
    line.cut();
    await Promise.all(calls);
    expect(await stored()).toHaveLength(50);
    expect(producer.load).toEqual({ tasks: 0, bytes: 0, waiting: 0 });
  });
});
