import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { eventually } from "../../support/eventually.ts";
import { BUILD_MS_MAX, CLIENTS, type GoProgram, GoPrograms, missingGo } from "./go-programs.ts";
import { PingRelay } from "./ping-relay.ts";
import { BAD_TOKEN, FORBIDDEN_COMMAND, GOOD_TOKEN, REFUSED_TOKEN, StandIn } from "./stand-in.ts";

/** What Go's gRPC makes of the status that a bad token ends with. */
const UNAUTHENTICATED = "rpc error: code = Unauthenticated desc = auth failed: unknown token";
/** What the clients make of an error event: a message, then its code. */
const REFUSED = "auth failed: unknown token (Unauthenticated)";

let missing: string | undefined;
let programs: GoPrograms;
const opened: { close(): void }[] = [];
const started: GoProgram[] = [];

beforeAll(async () => {
  missing = await missingGo();
  if (missing === undefined) programs = await GoPrograms.build("worker", "producer");
}, BUILD_MS_MAX);

afterEach(() => {
  for (const program of started.splice(0)) program.kill();
  for (const one of opened.splice(0).toReversed()) one.close();
});

afterAll(() => programs?.close());

async function standIn(options: Readonly<Record<string, number>> = {}): Promise<StandIn> {
  const server = await StandIn.start(options);
  opened.push(server);
  return server;
}

function start(...[name, flags]: Parameters<GoPrograms["start"]>): GoProgram {
  const program = programs.start(name, { token: GOOD_TOKEN, ...flags });
  started.push(program);
  return program;
}

const settled = (server: StandIn): string[] => server.results.flat().map(({ taskId }) => taskId);

const byNumber = (a: string, b: string): number => Number(a) - Number(b);

describe(`a worker by ${CLIENTS}`, () => {
  it("handles a hundred tasks one by one", async (context) => {
    if (missing !== undefined) context.skip(missing);
    const server = await standIn();
    const ids = Array.from({ length: 100 }, (_, index) => server.add(`{"n":${index}}`));
    const worker = start("worker", { url: server.url, concurrency: 4, count: 100, lease: 60 });
    await eventually(() => expect(settled(server)).toHaveLength(100));
    expect(await worker.stop(), worker.log).toBe(0);

    expect(settled(server).sort(byNumber)).toEqual(ids);
    expect(server.results.every((message) => message.length === 1)).toBe(true);
    expect(new Set(worker.of("task").map(({ id }) => id)).size).toBe(100);
    expect(worker.of("task")[0]).toMatchObject({
      command: "compat",
      priority: 5,
      attempts: 1,
      maxAttempts: 3,
      tenant: "acme",
      leaseUntil: "2030-01-01T00:00:00Z",
    });
    expect(server.results.flat()[0]).toMatchObject({ status: "COMPLETED", error: "" });
    expect(server.readies[0]).toEqual({ commands: [], leaseSeconds: 60, count: 1 });
    expect(worker.of("count")).toEqual([{ event: "count", count: 100 }]);
    expect(worker.of("end")).toEqual([{ event: "end", error: "" }]);
  });

  it("handles twenty tasks in batches of eight", async (context) => {
    if (missing !== undefined) context.skip(missing);
    const server = await standIn();
    const ids = Array.from({ length: 20 }, (_, index) => server.add(`{"n":${index}}`));
    const worker = start("worker", { url: server.url, mode: "batch", batch: 8, count: 20 });
    await eventually(() => expect(settled(server)).toHaveLength(20));
    expect(await worker.stop(), worker.log).toBe(0);

    expect(server.results.map((message) => message.length)).toEqual([8, 8, 4]);
    expect(settled(server)).toEqual(ids);
    expect(server.readies.map(({ count }) => count)).toEqual([8, 8, 8, 8]);
  });

  it("completes without a result, fails, puts back and gives back", async (context) => {
    if (missing !== undefined) context.skip(missing);
    const server = await standIn();
    const [none, zero, failed, nacked, given] = [
      server.add('{"outcome":"nil"}'),
      server.add('{"outcome":"zero"}'),
      server.add('{"outcome":"failed","reason":"no such order"}'),
      server.add('{"outcome":"nack","delay":30,"reason":"busy"}'),
      server.add('{"outcome":"abandon"}'),
    ];
    const worker = start("worker", { url: server.url, mode: "batch", batch: 8 });
    await eventually(() => expect(settled(server)).toHaveLength(5));
    expect(await worker.stop(), worker.log).toBe(0);

    const results = new Map(server.results.flat().map((result) => [result.taskId, result]));
    const empty = { status: "COMPLETED", resultJson: Buffer.alloc(0), error: "" };
    expect(results.get(none)).toEqual({ ...empty, taskId: none });
    expect(results.get(zero)).toEqual({ ...empty, taskId: zero });
    expect(results.get(failed)).toMatchObject({ status: "FAILED", error: "no such order" });
    expect(server.nacks).toEqual([{ taskId: nacked, delaySeconds: 30, reason: "busy" }]);
    expect(server.abandons).toEqual([given]);
    const again = worker.of("task").filter(({ attempts }) => attempts === 2);
    expect(again.map(({ id }) => id)).toEqual([nacked, given]);
  });

  it("carries its token in the first message and not in metadata", async (context) => {
    if (missing !== undefined) context.skip(missing);
    const server = await standIn();
    server.add("{}");
    const worker = start("worker", { url: server.url, worker: "go-1" });
    await eventually(() => expect(settled(server)).toHaveLength(1));
    await worker.stop();
    expect(server.hellos).toEqual([{ token: GOOD_TOKEN, workerId: "go-1" }]);
    const sent = server.metadata[0]?.getMap() ?? {};
    expect(sent["user-agent"]).toMatch(/^grpc-go\//);
    expect(sent).not.toHaveProperty("authorization");
  });

  it("is told why its token is refused, by a status or an event", async (context) => {
    if (missing !== undefined) context.skip(missing);
    const server = await standIn();
    for (const [token, reason] of [
      [BAD_TOKEN, UNAUTHENTICATED],
      [REFUSED_TOKEN, REFUSED],
    ] as const) {
      const worker = start("worker", { url: server.url, token });
      expect(await worker.end()).toBe(1);
      expect(worker.of("end")[0]?.["error"]).toContain(reason);
    }
  });

  it("logs an error event and stays", async (context) => {
    if (missing !== undefined) context.skip(missing);
    const server = await standIn();
    const worker = start("worker", { url: server.url, commands: FORBIDDEN_COMMAND });
    await eventually(() => expect(worker.log).toContain('"code":"PermissionDenied"'));
    expect(worker.log).toContain("event type not allowed");
    expect(worker.of("end")).toEqual([]);
    expect(await worker.stop()).toBe(0);
  });

  it("answers pings while it waits, and waits as long as it takes", async (context) => {
    if (missing !== undefined) context.skip(missing);
    const server = await standIn({
      "grpc.keepalive_time_ms": 200,
      "grpc.keepalive_timeout_ms": 5000,
    });
    const relay = await PingRelay.to(server.url);
    opened.push(relay);
    const worker = start("worker", { url: relay.url });
    await eventually(() => expect(relay.answered).toBeGreaterThan(3));
    const id = server.add("{}");
    await eventually(() => expect(settled(server)).toEqual([id]));
    expect(server.readies[0]?.count).toBe(1);
    expect(await worker.stop()).toBe(0);
  });

  it("ends without an error when the server ends the stream", async (context) => {
    if (missing !== undefined) context.skip(missing);
    const server = await standIn();
    const worker = start("worker", { url: server.url });
    await eventually(() => expect(server.readies).toHaveLength(1));
    server.hangUp();
    expect(await worker.end()).toBe(0);
    expect(worker.of("end")).toEqual([{ event: "end", error: "" }]);
  });
});

describe(`a producer by ${CLIENTS}`, () => {
  it("creates a hundred tasks at once and pairs acks by number", async (context) => {
    if (missing !== undefined) context.skip(missing);
    const server = await standIn();
    const producer = start("producer", { url: server.url, count: 100, concurrency: 100 });
    expect(await producer.end(), producer.log).toBe(0);

    expect(producer.of("hello")).toEqual([{ event: "hello", tenant: "acme", subject: "robot" }]);
    const acks = producer.of("ack");
    expect(acks.filter(({ error }) => error !== "")).toEqual([]);
    expect(new Set(acks.map(({ id }) => id)).size).toBe(100);
    const seqs = server.creates.flat().map(({ seq }) => seq);
    expect(seqs.toSorted((a, b) => Number(a - b))).toEqual(
      Array.from({ length: 100 }, (_, index) => BigInt(index + 1)),
    );
    // The stand-in gives ids as creates come, so each caller can be checked for its own ack.
    for (const { index, id } of acks) {
      const created = server.creates.flat()[Number(id) - 1];
      expect(created?.payload.toString()).toBe(`{"n":${String(index)}}`);
    }
  });

  it("creates twenty tasks in batches of eight", async (context) => {
    if (missing !== undefined) context.skip(missing);
    const server = await standIn();
    const producer = start("producer", { url: server.url, mode: "batch", batch: 8, count: 20 });
    expect(await producer.end(), producer.log).toBe(0);
    expect(server.creates.map((message) => message.length)).toEqual([8, 8, 4]);
    const ids = producer.of("ack").map(({ id }) => id);
    expect(ids).toEqual(Array.from({ length: 20 }, (_, index) => String(index + 1)));
  });

  it("sends every option", async (context) => {
    if (missing !== undefined) context.skip(missing);
    const server = await standIn();
    const producer = start("producer", {
      url: server.url,
      command: "send",
      payload: "",
      priority: 9,
      attempts: 7,
      webhook: "https://example.com/done",
      key: "order-%d",
      delay: 60,
      "run-at": "2030-01-01T00:00:00.123456789Z",
      trace: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    });
    expect(await producer.end(), producer.log).toBe(0);
    expect(server.creates).toEqual([
      [
        {
          seq: 1n,
          command: "send",
          payload: Buffer.alloc(0),
          priority: 9,
          maxAttempts: 7,
          webhook: "https://example.com/done",
          idempotencyKey: "order-0",
          delaySeconds: 60,
          runAt: new Date("2030-01-01T00:00:00.123Z"),
          traceParent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
          traceState: "",
          deduplicationKey: "",
          taskId: "",
        },
      ],
    ]);
  });

  it("hears why a create is refused, alone or in a batch", async (context) => {
    if (missing !== undefined) context.skip(missing);
    const server = await standIn();
    for (const mode of ["single", "batch"]) {
      const producer = start("producer", { url: server.url, mode, command: "" });
      expect(await producer.end(), producer.log).toBe(0);
      expect(producer.of("ack")).toEqual([
        { event: "ack", index: 0, id: "", error: "command is required" },
      ]);
    }
  });

  it("is told why its token is refused, by a status or an event", async (context) => {
    if (missing !== undefined) context.skip(missing);
    const server = await standIn();
    for (const [token, reason] of [
      [BAD_TOKEN, UNAUTHENTICATED],
      [REFUSED_TOKEN, REFUSED],
    ] as const) {
      const producer = start("producer", { url: server.url, token });
      expect(await producer.end()).toBe(1);
      expect(producer.of("end")[0]?.["error"]).toContain(reason);
    }
  });
});
