import { beforeEach, describe, expect, it } from "vitest";
import { VERSION } from "../../../src/base/version.ts";
import { status } from "../../support/stream-client.ts";
import {
  ACME,
  acks,
  create,
  GLOBEX,
  hello,
  MAILS_ONLY,
  newTask,
  PRODUCER,
  READER,
  refusals,
  type Scene,
  scene,
} from "./scene.ts";

let server: Scene;

beforeEach(async () => {
  server = await scene();
});

const stored = async () =>
  (await server.database.pool.query("SELECT * FROM tidemill.live_tasks ORDER BY id"))
    .rows as Record<string, unknown>[];

const json = (value: unknown): Buffer => Buffer.from(JSON.stringify(value));

describe("a hello of Tidemill's producer", () => {
  it("is answered with the limits of the stream", async () => {
    const stream = await hello(server.tidemill());
    expect(stream.received[0]).toEqual({
      message: {
        $case: "helloAck",
        value: {
          tenant: "acme",
          subject: "robot",
          server: { name: "tidemill", version: VERSION, capabilities: [] },
          createsMax: 256,
          tasksMax: 1_000,
          messageBytesMax: 4 * 1024 * 1024,
        },
      },
    });
  });

  it.each([
    ["a token that is not known", { token: "x" }, status.UNAUTHENTICATED, "not valid"],
    ["a token without the scope", { token: READER }, status.PERMISSION_DENIED, "producer"],
    ["a producer that is no UUID", { producerId: "me" }, status.INVALID_ARGUMENT, "UUID"],
  ])("with %s ends the stream", async (_what, given, code, details) => {
    const stream = await hello(server.tidemill(), given);
    const ended = await stream.ended;
    expect(ended.code).toBe(code);
    expect(ended.details).toContain(details);
  });

  it("comes first and once", async () => {
    const early = server.tidemill();
    create(early, 1n);
    expect((await early.ended).code).toBe(status.INVALID_ARGUMENT);
    const stream = await hello(server.tidemill());
    await hello(stream, { token: GLOBEX });
    stream.send({ message: undefined });
    await stream.until(3);
    expect(refusals(stream)).toEqual(new Map([[0n, "TM_INVALID_INPUT"]]));
  });
});

const BAD_TASKS: Readonly<Record<string, NonNullable<Parameters<typeof newTask>[0]>>> = {
  "a payload that is not JSON": { payload: Buffer.from("{") },
  "an empty payload": { payload: Buffer.alloc(0) },
  "a name with a blank at its end": { queue: "mails " },
  "a priority above 9": { priority: 10 },
  "a date and a delay": { runAt: new Date(), delaySeconds: 1 },
  "a delay below zero": { delaySeconds: -1 },
  "a delay that is no number": { delaySeconds: Number.NaN },
  "an unknown backoff": { backoff: { kind: "x", baseSeconds: undefined, maxSeconds: undefined } },
  "a timeout below zero": { timeoutSeconds: -1 },
  "a key with a separator": { partitionKey: "a\u001eb" },
  "a key of 1,025 bytes": { idempotencyKey: "x".repeat(1_025) },
  "a window below a second": { idempotencyKey: "k", idempotencySeconds: 0.5 },
  "a webhook that is no URL": { webhook: "example.com/" },
  "too many attempts": { maxAttempts: 2 ** 32 - 1 },
};

describe("creates of Tidemill's producer", () => {
  it("are answered with one result per task, in their order", async () => {
    const stream = await hello(server.tidemill());
    create(stream, 1n, [
      { payload: json(1) },
      { queue: "", payload: json(2) },
      { payload: json(3) },
    ]);
    create(stream, 2n, []);
    create(stream, 3n);
    await stream.until(4);
    const [first, second, third] = acks(stream).get(1n) ?? [];
    expect([Number(first) > 0, second, Number(third) > Number(first)]).toEqual([
      true,
      "TM_INVALID_INPUT",
      true,
    ]);
    expect(acks(stream).get(2n)).toEqual([]);
    expect(acks(stream).get(3n)).toHaveLength(1);
    expect((await stored()).map(({ payload }) => payload)).toEqual(["1", "3", "{}"]);
  });

  it("have every option that was sent", async () => {
    const stream = await hello(server.tidemill());
    create(stream, 1n, [
      {
        queue: "bills",
        payload: Buffer.from([1, 2]),
        contentType: "image/png",
        kind: "scan",
        priority: 0,
        partitionKey: "order:1",
        delaySeconds: 60,
        maxAttempts: 2,
        backoff: { kind: "fixed", baseSeconds: 1.5, maxSeconds: undefined },
        timeoutSeconds: 9.5,
        webhook: "https://example.com/x",
        traceParent: "tp",
        traceState: "ts",
      },
    ]);
    await stream.until(2);
    expect(await stored()).toMatchObject([
      {
        tenant: "acme",
        queue: "bills",
        bytes: Buffer.from([1, 2]),
        content_type: "image/png",
        kind: "scan",
        priority: 0,
        partition_key: "order:1",
        state: "scheduled",
        max_attempts: 2,
        options: {
          backoff: { kind: "fixed", baseSeconds: 1.5, maxSeconds: 900 },
          timeoutSeconds: 9.5,
          webhook: "https://example.com/x",
          traceParent: "tp",
          traceState: "ts",
        },
      },
    ]);
  });

  it("are refused for bad input, each task on its own", async () => {
    const stream = await hello(server.tidemill());
    const bad = Object.entries(BAD_TASKS);
    create(stream, 1n, [{}, ...bad.map(([, task]) => task), {}]);
    await stream.until(2);
    const results = acks(stream).get(1n) ?? [];
    const told = bad.map(([what], place) => [what, results[place + 1]]);
    expect(told).toEqual(bad.map(([what]) => [what, "TM_INVALID_INPUT"]));
    expect(results.at(-1)).toMatch(/^\d+$/);
    expect(await stored()).toHaveLength(2);
  });

  it("that are atomic are stored as a whole or not at all", async () => {
    const stream = await hello(server.tidemill());
    create(stream, 1n, [{ idempotencyKey: "taken" }]);
    create(stream, 2n, [{ idempotencyKey: "new" }, { queue: "" }], true);
    create(stream, 3n, [{ idempotencyKey: "new" }, { idempotencyKey: "taken", priority: 1 }], true);
    create(stream, 4n, [{ idempotencyKey: "new" }, {}], true);
    await stream.until(5);
    expect(acks(stream).get(2n)).toEqual(["TM_INVALID_INPUT", "TM_INVALID_INPUT"]);
    expect(acks(stream).get(3n)).toEqual(["TM_IDEMPOTENCY_CONFLICT", "TM_IDEMPOTENCY_CONFLICT"]);
    expect(acks(stream).get(4n)).toEqual([
      expect.stringMatching(/^\d/),
      expect.stringMatching(/^\d/),
    ]);
    expect(await stored()).toHaveLength(3);
  });

  it("are the same creates when they are sent again by the same producer", async () => {
    const first = await hello(server.tidemill(), { producerId: PRODUCER });
    create(first, 1n, [{}, {}]);
    await first.until(2);
    first.close();
    // What the queue adds by itself does not make it another task.
    await server.database.pool.query(
      `UPDATE tidemill.queues SET settings = settings || '{"maxAttempts": 9, "priority": 1}'`,
    );
    const second = await scene({ database: server.database });
    const again = await hello(second.tidemill(), { producerId: PRODUCER.toUpperCase() });
    create(again, 1n, [{}, {}]);
    create(again, 2n, [{}, {}]);
    create(again, 2n, [{}, { payload: json("other") }]);
    await again.until(4);
    const [one, other] = [acks(first).get(1n) ?? [], acks(again).get(1n) ?? []];
    expect(other).toEqual(one);
    expect(new Set(one).size).toBe(2);
    expect(acks(again).get(2n)?.[1]).toBe("TM_IDEMPOTENCY_CONFLICT");
    expect(await stored()).toHaveLength(4);
    expect((await second.mill.tasks.get(one[0] ?? "")).maxAttempts).toBe(5);
  });

  it("without a producer are new creates each time", async () => {
    const stream = await hello(server.tidemill());
    create(stream, 1n);
    create(stream, 1n);
    await stream.until(3);
    expect(await stored()).toHaveLength(2);
  });

  it("go only to queues of the token", async () => {
    const stream = await hello(server.tidemill(), { token: MAILS_ONLY });
    create(stream, 1n, [{}, { queue: "bills" }]);
    await stream.until(2);
    expect(acks(stream).get(1n)?.[1]).toBe("TM_FORBIDDEN");
  });

  it("with more tasks than was told are refused, and with far more end the stream", async () => {
    const stream = await hello(server.tidemill());
    create(
      stream,
      1n,
      Array.from({ length: 1_001 }, () => ({})),
    );
    await stream.until(2);
    expect(refusals(stream)).toEqual(new Map([[1n, "TM_INVALID_INPUT"]]));
    create(
      stream,
      2n,
      Array.from({ length: 2_001 }, () => ({})),
    );
    expect(await stream.ended).toEqual({
      code: status.INVALID_ARGUMENT,
      details: "a message has at most 2000 entries; send several messages",
    });
    expect(await stored()).toEqual([]);
  });

  it("of tenants go to each tenant's own", async () => {
    for (const token of [ACME, GLOBEX]) {
      const stream = await hello(server.tidemill(), { token, producerId: PRODUCER });
      create(stream, 1n, [{ partitionKey: "order:1" }]);
      await stream.until(2);
      expect(acks(stream).get(1n)?.[0]).toMatch(/^\d+$/);
    }
    expect((await stored()).map(({ tenant }) => tenant)).toEqual(["acme", "globex"]);
  });
});
