import { beforeEach, describe, expect, it } from "vitest";
import { connectProducer, connectWorker, queue } from "../../../src/client/index.ts";
import { HOOKS_TEST } from "../../support/egress-certificate.ts";
import { eventually } from "../../support/eventually.ts";
import {
  cable,
  gate,
  PRODUCER,
  producerOf,
  recorder,
  type Scene,
  scene,
  startServer,
  WORKER,
} from "./scene.ts";

const mails = queue<number>("mails");

let server: Scene;

beforeEach(async () => {
  server = await scene();
});

const stored = async (): Promise<number[]> => {
  const { rows } = await server.database.pool.query<{ payload: string }>(
    "SELECT payload FROM tidemill.live_tasks ORDER BY payload::int",
  );
  return rows.map(({ payload }) => Number(payload));
};
const upTo = (count: number): number[] => Array.from({ length: count }, (_, index) => index);

describe("a producer whose stream breaks", () => {
  it("sends again what was not answered, and nothing is stored twice", async () => {
    const line = await cable(server.producer);
    const producer = await producerOf({ url: line.address });
    line.loseAnswers(true);
    const calls = upTo(20).map((n) => producer.enqueue(mails, n));
    await eventually(async () => expect(await stored()).toHaveLength(20));
    line.loseAnswers(false);
    line.cut();
    const ids = (await Promise.all(calls)).map(({ id }) => id);
    expect(new Set(ids).size).toBe(20);
    expect(await stored()).toEqual(upTo(20));
    expect(line.connections).toBe(2);
  });

  it("sends what was enqueued while there was none", async () => {
    const line = await cable(server.producer);
    const producer = await producerOf({ url: line.address });
    line.refuse(true);
    line.cut();
    const calls = upTo(5).map((n) => producer.enqueue(mails, n));
    const before = line.connections;
    line.refuse(false);
    await Promise.all(calls);
    expect(await stored()).toEqual(upTo(5));
    expect(line.connections).toBe(before + 1);
  });

  it("says that it does not know, where no key makes a repetition harmless", async () => {
    const line = await cable(server.producer);
    const producer = await producerOf({ url: line.address, automaticKeys: false });
    line.loseAnswers(true);
    const unkeyed = producer.enqueue(mails, 1);
    await eventually(async () => expect(await stored()).toEqual([1]));
    line.loseAnswers(false);
    line.cut();
    await expect(unkeyed).rejects.toMatchObject({ code: "TM_COMMIT_UNKNOWN", retryable: true });
    await producer.enqueue(mails, 2, { idempotencyKey: "two" });
    line.loseAnswers(true);
    const keyed = producer.enqueue(mails, 3, { idempotencyKey: "three" });
    await eventually(async () => expect(await stored()).toEqual([1, 2, 3]));
    line.loseAnswers(false);
    line.cut();
    await keyed;
    expect(await stored()).toEqual([1, 2, 3]);
  });

  it("gives up at the deadline, and stores nothing behind the caller's back", async () => {
    const line = await cable(server.producer);
    const producer = await producerOf({ url: line.address });
    line.refuse(true);
    line.cut();
    await eventually(() => expect(line.connections).toBe(1));
    const late = producer.enqueue(mails, 1, { withinSeconds: 0.2 });
    await expect(late).rejects.toMatchObject({ code: "TM_TIMEOUT", retryable: true });
    expect(producer.load).toEqual({ tasks: 0, bytes: 0, waiting: 0 });
    line.refuse(false);
    await producer.enqueue(mails, 2);
    expect(await stored()).toEqual([2]);
  });

  it("goes to the next server, and back when that one is lost", async () => {
    const other = await startServer(await server.database.connect());
    const [first, second] = [await cable(server.producer), await cable(other.producer)];
    const producer = await producerOf({ url: [first.address, second.address] });
    await producer.enqueue(mails, 0);
    first.refuse(true);
    first.cut();
    await producer.enqueue(mails, 1);
    expect([first.connections, second.connections]).toEqual([1, 1]);
    first.refuse(false);
    second.refuse(true);
    second.cut();
    await producer.enqueue(mails, 2);
    expect(await stored()).toEqual([0, 1, 2]);
    expect(first.connections).toBe(2);
  });

  it("leaves a server that drains before it is gone", async () => {
    const other = await startServer(await server.database.connect());
    const logger = recorder();
    const producer = await producerOf({ url: [server.producer, other.producer], logger });
    const calls = upTo(50).map((n) => producer.enqueue(mails, n));
    const stopping = server.server.stop();
    calls.push(...upTo(50).map((n) => producer.enqueue(mails, n + 50)));
    await Promise.all([...calls, stopping]);
    await producer.enqueue(mails, 100);
    expect(await stored()).toEqual(upTo(101));
    expect(logger.lines.map(({ message }) => message)).toContain(
      "the server drains; connecting elsewhere",
    );
  });
});

describe("a producer that closes", () => {
  it("waits for the answers of what was enqueued, and takes no more", async () => {
    const producer = await producerOf({ url: server.producer });
    const calls = upTo(300).map((n) => producer.enqueue(mails, n));
    const flushed = producer.flush();
    const closed = producer.close();
    await expect(producer.enqueue(mails, -1)).rejects.toThrow(/closed/);
    await flushed;
    await closed;
    await Promise.all(calls);
    expect(await stored()).toEqual(upTo(300));
  });
});

describe("a connection", () => {
  it("is refused for good without a good token", async () => {
    const refused = (token: string) => connectProducer({ url: server.producer, token });
    await expect(refused("no such token")).rejects.toMatchObject({ code: "TM_UNAUTHENTICATED" });
    await expect(refused(WORKER)).rejects.toMatchObject({ code: "TM_FORBIDDEN" });
    const elsewhere = connectProducer({ url: server.worker, token: PRODUCER });
    await expect(elsewhere).rejects.toThrow(/is the port right/);
    const handlers = [mails.handle(() => {})];
    const worker = connectWorker({ url: server.worker, token: "unknown", handlers });
    await expect(worker).rejects.toMatchObject({ code: "TM_UNAUTHENTICATED" });
  });

  it("fails what is under way when its token is not good any more", async () => {
    const line = await cable(server.producer);
    let token = PRODUCER;
    const asked = gate();
    const producer = await producerOf({
      url: line.address,
      token: () => {
        if (token !== PRODUCER) asked.open();
        return token;
      },
    });
    await producer.enqueue(mails, 1);
    token = "revoked";
    line.cut();
    await asked.opened;
    const call = producer.enqueue(mails, 2);
    await expect(call).rejects.toMatchObject({ code: "TM_UNAUTHENTICATED", retryable: false });
    await expect(producer.enqueue(mails, 3)).rejects.toMatchObject({ code: "TM_UNAUTHENTICATED" });
    expect(await stored()).toEqual([1]);
  });

  it("knows the server by its certificate, and shows its own", async () => {
    const { cert, key } = HOOKS_TEST;
    const { producer: url } = await startServer(server.mill, {
      tls: { cert, key, clientCa: cert },
    });
    const own = { ca: cert, cert, key };
    const producer = await producerOf({ url, tls: { ...own, serverName: "hooks.test" } });
    await producer.enqueue(mails, 1);
    expect(await stored()).toEqual([1]);
    const options = { url, token: PRODUCER, connectSeconds: 0.3 };
    const strangers = [true, { ca: cert }, { ...own, serverName: "other.test" }, undefined];
    for (const tls of strangers) {
      const refused = connectProducer(tls === undefined ? options : { ...options, tls });
      await expect(refused).rejects.toMatchObject({ code: "TM_UNAVAILABLE" });
    }
  });

  it("says where nobody answers", async () => {
    const nobody = connectProducer({ url: "127.0.0.1:1", token: PRODUCER, connectSeconds: 0.3 });
    await expect(nobody).rejects.toMatchObject({ code: "TM_UNAVAILABLE" });
    await expect(nobody).rejects.toThrow(/not connected within 0.3 s: 127.0.0.1:1/);
  });
});
