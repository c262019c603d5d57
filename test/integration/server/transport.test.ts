import { once } from "node:events";
import { type ClientHttp2Stream, connect, constants } from "node:http2";
import {
  type ChannelCredentials,
  credentials,
  Metadata,
  makeClientConstructor,
} from "@grpc/grpc-js";
import { service as healthService } from "grpc-health-check";
import { describe, expect, it } from "vitest";
import { ConfigError } from "../../../src/index.ts";
import { TidemillServer } from "../../../src/server/index.ts";
import { ProducerEvent, ServerEvent } from "../../../src/wire/generated/codeq/producer.ts";
import { onCleanup } from "../../support/database.ts";
import { HOOKS_TEST } from "../../support/egress-certificate.ts";
import { eventually } from "../../support/eventually.ts";
import {
  type CodeqStream,
  codeqStream,
  StreamClient,
  status,
} from "../../support/stream-client.ts";
import {
  ACME,
  acks,
  codeqAcks,
  codeqBatch,
  codeqCreate,
  codeqHello,
  codeqTask,
  committing,
  create,
  GLOBEX,
  hello,
  refusals,
  scene,
  waitInCommit,
} from "./scene.ts";

/** A stream whose client sends bytes of its own. */
function rawStream(url: string): StreamClient<Buffer, Buffer> {
  const identity = (bytes: Buffer): Buffer => bytes;
  const stream = {
    path: "/producerpb.ProducerStream/Stream",
    requestStream: true,
    responseStream: true,
    requestSerialize: identity,
    requestDeserialize: identity,
    responseSerialize: identity,
    responseDeserialize: identity,
  } as const;
  const Client = makeClientConstructor({ stream }, "raw");
  const client = new Client(url, credentials.createInsecure());
  const call = client.makeBidiStreamRequest(stream.path, identity, identity, new Metadata(), {});
  const raw = new StreamClient<Buffer, Buffer>(client, call);
  onCleanup(() => Promise.resolve(raw.close()));
  return raw;
}

describe("a stream", () => {
  it("ends when no hello comes in time", async () => {
    const { codeq } = await scene({ server: { helloSeconds: 0.1 } });
    const [silent, known] = [codeq(), await codeqHello(codeq())];
    expect(await silent.ended).toEqual({
      code: status.DEADLINE_EXCEEDED,
      details: "no hello came within 0.1 s",
    });
    codeqCreate(known, {});
    await known.until(2);
    expect(codeqAcks(known)).toMatchObject([{ ok: true }]);
  });

  it("ends with a status when its first message cannot be taken", async () => {
    const { url, codeq } = await scene();
    const entries = Buffer.alloc(3 * 1024 * 1024, Buffer.from([0x0a, 0x00]));
    const many = Buffer.concat([Buffer.from([0x1a, 0x80, 0x80, 0xc0, 0x01]), entries]);
    for (const [bytes, code, details] of [
      [Buffer.from([0x0b, 0x0c]), status.INVALID_ARGUMENT, "the message cannot be read"],
      [many, status.INVALID_ARGUMENT, "a message has at most 2000 entries"],
      [largeHello(70_000), status.INVALID_ARGUMENT, "a hello has at most 65536 bytes"],
      [largeHello(5 * 1024 * 1024), status.RESOURCE_EXHAUSTED, "larger than max"],
    ] as const) {
      const raw = rawStream(url);
      raw.send(bytes);
      const ended = await raw.ended;
      expect(ended.code).toBe(code);
      expect(ended.details).toContain(details);
    }
    expect((await codeqHello(codeq())).received).toHaveLength(1);
  });

  it("of a client that reads nothing costs little, is given up, and delays nobody", async () => {
    const { codeq, logs, server } = await scene({ server: { stallSeconds: 0.5 } });
    const stalled = await codeqHello(codeq());
    stalled.call.pause();
    // Refusals are answered at once, so that acks grow as fast as they can.
    const bad = Array.from({ length: 1_000 }, (_, n) => ({ seq: BigInt(n), taskId: "x" }));
    for (let n = 0; n < 200; n += 1) codeqBatch(stalled, bad);
    const quick = await codeqHello(codeq());
    for (let n = 0; n < 50; n += 1) codeqCreate(quick, { seq: BigInt(n) });
    await quick.until(51);
    expect(codeqAcks(quick).every(({ ok }) => ok)).toBe(true);
    await eventually(() => {
      const line = logs.find(({ message }) => /does not read/.test(message));
      expect(line?.fields["unreadBytes"]).toBeGreaterThan(0);
      expect(line?.fields["unreadBytes"]).toBeLessThan(2 * 1024 * 1024);
    });
    await eventually(() => {
      expect(server.metrics.streams.value({ listener: "producer" })).toBe(1);
    });
    stalled.call.resume();
    expect((await stalled.ended).code).toBe(status.CANCELLED);
  });

  it("is read no further while its creates wait", async () => {
    const { codeq, database } = await scene();
    const stream = await codeqHello(codeq());
    codeqCreate(stream, { seq: 0n });
    await stream.until(2);
    await waitInCommit(database);
    const session = await database.session();
    await session.query("SELECT pg_advisory_lock(42)");
    const payload = Buffer.from(JSON.stringify("x".repeat(900_000)));
    const total = 40;
    let taken = 0;
    for (let n = 1; n <= total; n += 1) {
      const value = codeqTask({ seq: BigInt(n), payload });
      stream.call.write({ event: { $case: "create", value } }, () => {
        taken += 1;
      });
    }
    await eventually(() => expect(taken).toBeGreaterThan(3));
    const other = await codeqHello(codeq());
    for (let n = 0; n < 100; n += 1) {
      other.send({ event: undefined });
      await other.until(n + 2);
    }
    // 8 MiB under way, which weigh twice their bytes, one that waits for room, one behind it.
    expect(taken).toBeLessThan(9);
    await session.query("SELECT pg_advisory_unlock(42)");
    await stream.until(total + 2);
    expect(codeqAcks(stream).every(({ ok }) => ok)).toBe(true);
  });

  it("too many is turned away, and more without a hello sooner", async () => {
    const limits = { streamsMax: 3, streamsPerTenantMax: 3 };
    const strangers = { strangersMax: 2, strangersPerAddressMax: 2 };
    const { codeq } = await scene({ server: { ...limits, ...strangers } });
    const known = [await codeqHello(codeq()), await codeqHello(codeq())];
    const third = await codeqHello(codeq());
    expect(third.received).toHaveLength(1);
    expect(await (await codeqHello(codeq())).ended).toEqual({
      code: status.UNAVAILABLE,
      details: "the server has as many streams as it takes",
    });
    for (const stream of [...known, third]) stream.call.end();
    for (const stream of [...known, third]) await stream.ended;
    await eventually(async () => {
      const strangers = [codeq(), codeq()];
      const late = await codeqHello(codeq());
      for (const stranger of strangers) stranger.close();
      expect((await late.ended).details).toBe("too many streams wait for their hello");
    });
  });

  it("of one tenant too many is turned away, and of another is not", async () => {
    const { codeq } = await scene({ server: { streamsMax: 4 } });
    const known = [await codeqHello(codeq()), await codeqHello(codeq()), await codeqHello(codeq())];
    for (const stream of known) await stream.until(1);
    const fourth = await codeqHello(codeq());
    expect(await fourth.ended).toEqual({
      code: status.UNAVAILABLE,
      details: "the tenant has as many streams as one may have here",
    });
    const other = codeq();
    other.send({ event: { $case: "hello", value: { token: GLOBEX } } });
    await other.until(1);
    known[0]?.call.end();
    await known[0]?.ended;
    await eventually(async () => {
      const fifth = await codeqHello(codeq());
      expect(await Promise.race([fifth.until(1), fifth.ended])).toHaveLength(1);
    });
  });

  it("of one address too many without a hello is turned away", async () => {
    const { codeq, server } = await scene({ server: { strangersMax: 4 } });
    const strangers = [codeq(), codeq()];
    await eventually(() => {
      expect(server.metrics.streams.value({ listener: "producer" })).toBe(2);
    });
    expect((await codeq().ended).details).toBe("too many streams wait for their hello");
    for (const stranger of strangers) stranger.close();
    await eventually(async () => {
      const late = await codeqHello(codeq());
      expect(await Promise.race([late.until(1), late.ended])).toHaveLength(1);
    });
  });

  it("gets an answer of thousands of acks in messages that are small enough", async () => {
    const { codeq } = await scene();
    const stream = await codeqHello(codeq());
    const long = "x".repeat(199);
    codeqBatch(
      stream,
      Array.from({ length: 2_000 }, (_, n) => ({
        seq: BigInt(n),
        command: long,
        webhook: `https://example.com/${"ü".repeat(600)}`,
      })),
    );
    await eventually(() => expect(codeqAcks(stream)).toHaveLength(2_000));
    expect(codeqAcks(stream).map(({ seq }) => Number(seq))).toEqual([...Array(2_000).keys()]);
    expect(codeqAcks(stream).every(({ errorMessage }) => errorMessage !== "")).toBe(true);
    expect(stream.received.length).toBeGreaterThan(1);
  });
});

function largeHello(bytes: number): Buffer {
  const token = Buffer.alloc(bytes, "x");
  const length = (count: number): number[] => {
    const out: number[] = [];
    for (let left = count; ; left = Math.floor(left / 128)) {
      out.push(left < 128 ? left : (left % 128) + 128);
      if (left < 128) return out;
    }
  };
  const inner = Buffer.concat([Buffer.from([0x0a, ...length(bytes)]), token]);
  return Buffer.concat([Buffer.from([0x0a, ...length(inner.length)]), inner]);
}

/** A message as gRPC has it on the wire: not compressed, so many bytes. */
function frame(event: ProducerEvent["event"]): Buffer {
  const bytes = ProducerEvent.encode({ event }).finish();
  const head = Buffer.alloc(5);
  head.writeUInt32BE(bytes.length, 1);
  return Buffer.concat([head, bytes]);
}

/** What came on a stream of HTTP/2, until its end. */
async function eventsOf(stream: ClientHttp2Stream): Promise<(string | undefined)[]> {
  const parts: Buffer[] = [];
  for await (const part of stream) parts.push(part as Buffer);
  const bytes = Buffer.concat(parts);
  const events: (string | undefined)[] = [];
  for (let at = 0; at < bytes.length; ) {
    const end = at + 5 + bytes.readUInt32BE(at + 1);
    events.push(ServerEvent.decode(bytes.subarray(at + 5, end)).event?.$case);
    at = end;
  }
  return events;
}

describe("a stop", () => {
  it("tells producers, answers what they sent, ends their streams and takes no more", async () => {
    const { tidemill, codeq, server, url, database } = await scene();
    const streams = [await hello(tidemill()), await hello(tidemill())] as const;
    const old = await codeqHello(codeq());
    create(streams[0], 1n);
    codeqCreate(old, { seq: 1n });
    await streams[0].until(2);
    await old.until(2);
    const begun = performance.now();
    await server.stop();
    expect(performance.now() - begun).toBeLessThan(1_900);
    for (const stream of streams) {
      expect(stream.received.at(-1)?.message).toEqual({
        $case: "drain",
        value: { graceSeconds: 2, reason: "the server is stopping" },
      });
      expect((await stream.ended).code).toBe(status.UNAVAILABLE);
    }
    expect(acks(streams[0]).get(1n)).toHaveLength(1);
    expect(codeqAcks(old)).toMatchObject([{ ok: true }]);
    expect((await old.ended).code).toBe(status.UNAVAILABLE);
    const late = rawStream(url);
    expect((await late.ended).code).toBe(status.UNAVAILABLE);
    await server.stop();
    const { rows } = await database.pool.query("SELECT id FROM tidemill.tasks");
    expect(rows).toHaveLength(2);
  });

  it("waits for a commit that is on its way, and refuses what comes meanwhile", async () => {
    const { tidemill, server, database } = await scene();
    const stream = await hello(tidemill());
    create(stream, 1n);
    await stream.until(2);
    await waitInCommit(database);
    const session = await database.session();
    await session.query("SELECT pg_advisory_lock(42)");
    create(stream, 2n);
    await committing(database);
    const stopping = server.stop();
    await stream.until(3);
    create(stream, 3n);
    await stream.until(4);
    expect(refusals(stream)).toEqual(new Map([[3n, "TM_UNAVAILABLE"]]));
    await session.query("SELECT pg_advisory_unlock(42)");
    await stopping;
    expect([...acks(stream).keys()]).toEqual([1n, 2n]);
  });

  it("tells connections to go elsewhere (GOAWAY), and finishes the streams on them", async () => {
    const { codeq, server, url, database } = await scene();
    const first = await codeqHello(codeq());
    codeqCreate(first, {});
    await first.until(2);
    await waitInCommit(database);
    const locker = await database.session();
    await locker.query("SELECT pg_advisory_lock(42)");
    const connection = connect(`http://${url}`);
    onCleanup(() => Promise.resolve(connection.destroy()));
    connection.on("error", () => {}); // Of a server that cuts it off.
    const told = once(connection, "goaway");
    const stream = connection.request({
      ":method": "POST",
      ":path": "/producerpb.ProducerStream/Stream",
      "content-type": "application/grpc",
      te: "trailers",
    });
    const trailers = once(stream, "trailers");
    const events = eventsOf(stream);
    stream.write(frame({ $case: "hello", value: { token: ACME } }));
    stream.write(frame({ $case: "create", value: codeqTask({ seq: 2n }) }));
    await committing(database);
    const stopping = server.stop();
    const [code] = (await told) as [number];
    expect([code, stream.closed]).toEqual([constants.NGHTTP2_NO_ERROR, false]);
    await locker.query("SELECT pg_advisory_unlock(42)");
    expect(await events).toEqual(["helloAck", "createAck"]);
    stream.end();
    const [ended] = (await trailers) as [Record<string, string>];
    expect(ended["grpc-status"]).toBe(`${status.UNAVAILABLE}`);
    await stopping;
  });

  it("does not wait longer than told", async () => {
    const { tidemill, server, database } = await scene({ server: { drainSeconds: 0.2 } });
    const stream = await hello(tidemill());
    const session = await database.session();
    await session.query("BEGIN; LOCK TABLE tidemill.queues IN ACCESS EXCLUSIVE MODE");
    create(stream, 1n);
    await eventually(async () => {
      const { rows } = await session.query(
        `SELECT FROM pg_locks AS held JOIN pg_database AS own ON own.oid = held.database
          WHERE NOT held.granted AND own.datname = current_database()`,
      );
      expect(rows.length).toBeGreaterThan(0);
    });
    const stopping = server.stop();
    expect((await stream.ended).code).toBe(status.UNAVAILABLE);
    await session.query("COMMIT");
    await stopping;
    expect(acks(stream)).toEqual(new Map());
  });
});

describe("a server", () => {
  it("answers for its health", async () => {
    const { url } = await scene();
    const Health = makeClientConstructor(healthService, "grpc.health.v1.Health");
    const client = new Health(url, credentials.createInsecure());
    onCleanup(() => Promise.resolve(client.close()));
    const check = async (service: string): Promise<unknown> =>
      await new Promise((resolve) => {
        const done = (error: unknown, answer: unknown): void => resolve(error ?? answer);
        Reflect.apply(Reflect.get(client, "check") as () => void, client, [{ service }, done]);
      });
    expect(await check("")).toEqual({ status: "SERVING" });
    expect(await check("producerpb.ProducerStream")).toEqual({ status: "SERVING" });
    expect(await check("nobody")).toMatchObject({ code: status.NOT_FOUND });
  });

  it("speaks TLS, and turns away clients without a certificate when it asks for one", async () => {
    const { cert, key } = HOOKS_TEST;
    const { url } = await scene({ server: { tls: { cert, key, clientCa: cert } } });
    const open = (tls: ChannelCredentials): CodeqStream => {
      const stream = codeqStream(url, tls);
      onCleanup(() => Promise.resolve(stream.close()));
      return stream;
    };
    const [root, ownKey, own] = [cert, key, cert].map((text) => Buffer.from(text));
    const known = await codeqHello(open(credentials.createSsl(root, ownKey, own)));
    expect(known.received).toHaveLength(1);
    const unknown = await codeqHello(open(credentials.createSsl(root)));
    expect((await unknown.ended).code).toBe(status.UNAVAILABLE);
  });

  it("refuses options that cannot work", async () => {
    const { mill, server } = await scene();
    const make = (options: object) => () => new TidemillServer(mill, options);
    expect(make({ drainsSeconds: 1 })).toThrow('did you mean "drainSeconds"?');
    expect(make({ producer: { prot: 1 } })).toThrow('did you mean "port"?');
    expect(make({ producer: { port: 65_536 } })).toThrow(ConfigError);
    expect(make({ producer: true })).toThrow(ConfigError);
    expect(make({ host: "a b" })).toThrow(ConfigError);
    expect(make({ createBytesMax: 1 })).toThrow(ConfigError);
    expect(make({ leaseSeconds: 5, keepaliveSeconds: 4 })).toThrow("past their lease");
    expect(make({ leaseSeconds: 5, keepaliveSeconds: 4, worker: false })).not.toThrow();
    expect(make({ tls: { cert: "/etc/cert.pem", key: "x" } })).toThrow("not its name");
    expect(make({ tls: { cert: "-----BEGIN X", key: "-----BEGIN Y" } })).toThrow("cannot be used");
    const { port } = server.address("producer");
    const alone = { worker: false, http: false, metrics: false } as const;
    const taken = { host: "127.0.0.1", producer: { port }, ...alone };
    const second = new TidemillServer(mill, taken);
    await expect(second.start()).rejects.toThrow("is another program there?");
    await expect(server.start()).rejects.toThrow("started before");
    const none = new TidemillServer(mill, { producer: false, ...alone });
    expect(() => none.address("producer")).toThrow("does not listen for producer");
    await none.stop();
  });
});
