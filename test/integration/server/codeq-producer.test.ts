import { beforeEach, describe, expect, it } from "vitest";
import { putTopic } from "../../../src/server/http/codeq/sql/topics.ts";
import { eventually } from "../../support/eventually.ts";
import { status } from "../../support/stream-client.ts";
import { readColumn } from "../tasks/scene.ts";
import {
  ACME,
  codeqAcks,
  codeqBatch,
  codeqCreate,
  codeqHello,
  GLOBEX,
  MAILS_ONLY,
  READER,
  type Scene,
  scene,
} from "./scene.ts";

let server: Scene;

beforeEach(async () => {
  server = await scene();
});

const stored = async () =>
  (
    await server.database.pool.query(
      `SELECT id, tenant, queue, priority, state, payload, bytes, max_attempts, options
         FROM tidemill.live_tasks ORDER BY id`,
    )
  ).rows as Record<string, unknown>[];

describe("a hello of CodeQ's producer", () => {
  it("is answered with the tenant and the subject of the token", async () => {
    const stream = await codeqHello(server.codeq());
    expect(stream.received).toEqual([
      { event: { $case: "helloAck", value: { tenantId: "acme", subject: "robot" } } },
    ]);
  });

  it.each([
    [
      "no token that is known",
      "some-other-token-0123456789",
      "auth failed: the token is not valid",
    ],
    ["no token at all", "", "auth failed: no token was given"],
  ])("with %s ends the stream", async (_what, token, details) => {
    const stream = await codeqHello(server.codeq(), token);
    expect(await stream.ended).toEqual({ code: status.UNAUTHENTICATED, details });
    expect(stream.received).toEqual([]);
  });

  it("without the scope of producers ends the stream", async () => {
    const stream = await codeqHello(server.codeq(), READER);
    expect(await stream.ended).toEqual({
      code: status.PERMISSION_DENIED,
      details: "missing scope",
    });
  });

  it("must come first, and a second one changes nothing", async () => {
    const early = server.codeq();
    codeqCreate(early, {});
    expect(await early.ended).toEqual({
      code: status.FAILED_PRECONDITION,
      details: "first event must be Hello",
    });
    const stream = await codeqHello(server.codeq());
    stream.send({ event: { $case: "hello", value: { token: GLOBEX } } });
    codeqCreate(stream, { seq: 7n });
    await stream.until(3);
    expect(stream.received[1]).toEqual({
      event: {
        $case: "error",
        value: { code: "FailedPrecondition", message: "already-authenticated" },
      },
    });
    expect(codeqAcks(stream)).toMatchObject([{ seq: 7n, ok: true }]);
    expect(await stored()).toMatchObject([{ tenant: "acme" }]);
  });

  it("is enough for an event that is not known to be told so", async () => {
    const stream = await codeqHello(server.codeq());
    stream.send({ event: undefined });
    await stream.until(2);
    expect(stream.received[1]).toEqual({
      event: { $case: "error", value: { code: "InvalidArgument", message: "unknown-event" } },
    });
  });
});

describe("creates of CodeQ's producer", () => {
  it("are acked by their numbers, however many are on their way", async () => {
    const stream = await codeqHello(server.codeq());
    const seqs = [...Array.from({ length: 600 }, (_, n) => BigInt(n)), 2n ** 64n - 1n];
    for (const seq of seqs) codeqCreate(stream, { seq, payload: Buffer.from(`{"n":${seq}}`) });
    await stream.until(seqs.length + 1);
    const acks = codeqAcks(stream);
    expect(acks.map(({ seq }) => seq)).toEqual(seqs);
    expect(acks.every(({ ok, taskId }) => ok && /^\d+$/.test(taskId))).toBe(true);
    expect(new Set(acks.map(({ taskId }) => taskId)).size).toBe(seqs.length);
    const payloads = (await stored()).map(({ payload }) => payload);
    expect(payloads).toEqual(seqs.map((seq) => `{"n":${seq}}`));
    stream.call.end();
    expect((await stream.ended).code).toBe(status.OK);
  });

  it("in a batch are acked in their order, each on its own", async () => {
    const stream = await codeqHello(server.codeq());
    codeqBatch(stream, []);
    codeqBatch(stream, [
      { seq: 1n },
      { seq: 2n, command: " " },
      { seq: 3n, command: "a\u0007b" },
      { seq: 4n, delaySeconds: -1 },
      { seq: 5n, webhook: "ftp://example.com" },
      { seq: 6n, taskId: "mine" },
      { seq: 7n, deduplicationKey: "b" },
      { seq: 8n, payload: Buffer.alloc(2 * 1024 * 1024, "1") },
      { seq: 9n, traceParent: "x".repeat(1_025) },
      { seq: 10n, runAt: new Date(8.64e15) },
      { seq: 11n },
    ]);
    await stream.until(2);
    const acks = codeqAcks(stream);
    expect(acks.map(({ seq, ok }) => [seq, ok])).toEqual(
      Array.from({ length: 11 }, (_, n) => [BigInt(n + 1), n === 0 || n === 10]),
    );
    expect(acks.slice(1, 7).map(({ errorMessage }) => errorMessage)).toEqual([
      "command is required",
      "invalid command",
      "delaySeconds must be >= 0",
      "invalid webhook url",
      "task_id is not taken: the server numbers tasks; use a key",
      "deduplication_key is not taken: no create joins a task that waits; leave it out, or use " +
        "idempotency_key for a create that may be sent again",
    ]);
    expect(acks[7]?.errorMessage).toMatch(/^the payload has 2097152 bytes/);
    expect(acks[8]?.errorMessage).toMatch(/^traceParent must have at most 1024 bytes/);
    expect(acks[9]?.errorMessage).toMatch(/^runAt must be a Date/);
    expect(await stored()).toHaveLength(2);
  });

  it("keep every byte of a payload, JSON or not", async () => {
    const stream = await codeqHello(server.codeq());
    const payloads = ['{ "a" : 1.50, "a": 2 }', "", "not JSON", "\ufeff{}"].map((text) =>
      Buffer.from(text),
    );
    payloads.push(Buffer.from([0, 255, 30, 31]));
    codeqBatch(
      stream,
      payloads.map((payload, n) => ({ seq: BigInt(n), payload })),
    );
    await stream.until(2);
    const rows = await stored();
    expect(rows.map(({ payload }) => payload)).toEqual([
      '{ "a" : 1.50, "a": 2 }',
      "null",
      null,
      null,
      null,
    ]);
    expect(rows.slice(2).map(({ bytes }) => bytes)).toEqual(payloads.slice(2));
  });

  it("have the options that were sent", async () => {
    const stream = await codeqHello(server.codeq());
    codeqBatch(stream, [
      {
        priority: 99,
        maxAttempts: 7,
        webhook: "https://example.com/done",
        traceParent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        delaySeconds: 60,
      },
      { priority: -3, runAt: new Date("2001-01-01T00:00:00Z"), delaySeconds: 60 },
    ]);
    await stream.until(2);
    expect(await stored()).toMatchObject([
      {
        priority: 9,
        max_attempts: 7,
        state: "scheduled",
        options: {
          webhook: "https://example.com/done",
          traceParent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        },
      },
      { priority: 0, max_attempts: 5, state: "pending", options: null },
    ]);
  });

  it("without a number of attempts have that of their topic, whatever it was before", async () => {
    const put = async (maxAttempts: number): Promise<void> => {
      const policy = { maxAttempts };
      await putTopic(server.mill.engine.db, "acme", { name: "mails", policy }, 10);
    };
    await put(8);
    const stream = await codeqHello(server.codeq());
    codeqBatch(stream, [
      { seq: 1n },
      { seq: 2n, maxAttempts: 2 },
      { seq: 3n, command: "letters" },
      { seq: 4n, idempotencyKey: "once" },
      { seq: 5n },
    ]);
    const other = await codeqHello(server.codeq(), GLOBEX);
    codeqCreate(other, { seq: 1n });
    await Promise.all([stream.until(2), other.until(2)]);
    const attempts = new Map((await stored()).map(({ id, max_attempts }) => [id, max_attempts]));
    const acked = [...codeqAcks(stream), ...codeqAcks(other)];
    expect(acked.map(({ taskId }) => attempts.get(taskId))).toEqual([8, 2, 5, 8, 8, 5]);
    await put(7);
    // What was read is believed for a moment.
    await eventually(async () => {
      codeqCreate(stream, { seq: 6n });
      await stream.until(stream.received.length + 1);
      expect((await stored()).at(-1)).toMatchObject({ tenant: "acme", max_attempts: 7 });
    });
    const [first] = codeqAcks(stream).filter(({ seq }) => seq === 4n);
    codeqCreate(stream, { seq: 7n, idempotencyKey: "once" });
    await stream.until(stream.received.length + 1);
    expect(codeqAcks(stream).at(-1)).toMatchObject({ ok: true, taskId: first?.taskId });
  });

  it("with an idempotency key give the first task, on other streams too", async () => {
    const streams = [await codeqHello(server.codeq()), await codeqHello(server.codeq())];
    const other = await codeqHello(server.codeq(), GLOBEX);
    for (const stream of [...streams, other]) {
      codeqCreate(stream, { seq: 1n, idempotencyKey: "order-1" });
      codeqCreate(stream, { seq: 2n, idempotencyKey: "order-1" });
      codeqCreate(stream, { seq: 3n, idempotencyKey: "order-1", payload: Buffer.from("2") });
    }
    for (const stream of [...streams, other]) await stream.until(4);
    const ids = streams.flatMap((stream) => codeqAcks(stream).slice(0, 2));
    expect(new Set(ids.map(({ ok, taskId }) => ok && taskId)).size).toBe(1);
    expect(codeqAcks(other)[0]?.taskId).not.toBe(ids[0]?.taskId);
    for (const stream of [...streams, other]) {
      expect(codeqAcks(stream)[2]).toEqual({
        seq: 3n,
        ok: false,
        taskId: "",
        errorMessage: "idempotency conflict",
      });
    }
    expect(new Set((await stored()).map(({ tenant }) => tenant))).toEqual(
      new Set(["acme", "globex"]),
    );
    expect(await stored()).toHaveLength(2);
  });

  it("go only to the queues that the token is for", async () => {
    const stream = await codeqHello(server.codeq(), MAILS_ONLY);
    codeqBatch(stream, [{ seq: 1n }, { seq: 2n, command: "bills" }]);
    await stream.until(2);
    expect(codeqAcks(stream)).toMatchObject([
      { seq: 1n, ok: true },
      { seq: 2n, ok: false, errorMessage: "event type not allowed" },
    ]);
    expect(await readColumn(server.database, "SELECT name FROM tidemill.queues")).toEqual([
      "mails",
    ]);
  });

  it("of many streams are committed together", async () => {
    const streams = await Promise.all(
      Array.from({ length: 20 }, (_, n) => codeqHello(server.codeq(), n % 2 ? ACME : GLOBEX)),
    );
    for (let n = 0; n < 50; n += 1) {
      for (const stream of streams) codeqCreate(stream, { seq: BigInt(n), command: `q${n % 3}` });
    }
    for (const stream of streams) await stream.until(51);
    expect(streams.flatMap(codeqAcks).every(({ ok }) => ok)).toBe(true);
    const transactions = await readColumn(
      server.database,
      `SELECT DISTINCT xmin::text FROM (SELECT xmin FROM tidemill.tasks
        UNION ALL SELECT xmin FROM tidemill.task_packs) AS one`,
    );
    expect((await stored()).length).toBe(1_000);
    expect(transactions.length).toBeLessThan(300);
  });
});
