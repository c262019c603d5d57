import { Client, credentials } from "@grpc/grpc-js";
import { BatchWriter, fieldSize, varintSize } from "../../src/wire/batch-writer.ts";
import { FieldReader } from "../../src/wire/field-reader.ts";
import {
  type CreateTask,
  ProducerEvent,
  ProducerStreamService,
  ServerEvent,
} from "../../src/wire/generated/codeq/producer.ts";
import type { OpenOptions } from "../tasks/protocol.ts";
import type { Payload, Producer } from "../tasks/role.ts";
import { CHANNEL_OPTIONS, QUEUE, TOKEN } from "./token.ts";

/** Fields with their kinds: of events, of a create, of an ack. */
const CREATE_BATCH = 0x1a;
const CREATE_ACK_BATCH = 0x22;
const ENTRY = 0x0a;
const SEQ = 0x08;
const COMMAND = 0x12;
const PAYLOAD = 0x1a;
const PRIORITY = 0x20;
const OK = 0x10;

const identity = (bytes: Buffer): Buffer => bytes;

/** One stream, which has any number of messages under way; a create counts when it is acked. */
export async function openProducer(options: OpenOptions): Promise<Producer> {
  const { server: ports, perMessage = 1 } = options;
  if (ports === undefined) throw new Error("where is the server?");
  const client = new Client(
    `127.0.0.1:${ports.producer}`,
    credentials.createInsecure(),
    CHANNEL_OPTIONS,
  );
  const { path } = ProducerStreamService.stream;
  const stream = client.makeBidiStreamRequest(path, identity, identity);
  const waiting = new Map<number, () => void>();
  let seq = 0;
  let fail: (error: Error) => void = () => {};
  const failed = new Promise<never>((_, reject) => {
    fail = reject;
  });
  failed.catch(() => {});
  stream.on("error", (error) => fail(error));
  const settle = (acked: number): void => {
    waiting.get(acked)?.();
    waiting.delete(acked);
  };
  const greeted = new Promise<void>((resolve) => {
    stream.on("data", (bytes: Buffer) => {
      if (bytes[0] === CREATE_ACK_BATCH) return settle(readAcks(bytes));
      const { event } = ServerEvent.decode(bytes);
      if (event?.$case === "createAck" && event.value.ok) settle(Number(event.value.seq));
      else if (event?.$case === "helloAck") resolve();
      else fail(new Error(`the server said ${bytes.toString("latin1")}`));
    });
  });
  const say = (event: ProducerEvent["event"]): void =>
    void stream.write(Buffer.from(ProducerEvent.encode({ event }).finish()));
  say({ $case: "hello", value: { token: TOKEN } });
  await Promise.race([greeted, failed]);

  const send = async (payloads: readonly Payload[]): Promise<void> => {
    const first = seq + 1;
    seq += payloads.length;
    // Acks of one message come together.
    const acked = new Promise<void>((resolve) => waiting.set(seq, resolve));
    if (perMessage > 1) stream.write(writeCreates(payloads, first));
    else {
      const payload = Buffer.from(JSON.stringify(payloads[0]));
      say({ $case: "create", value: { ...BLANK, seq: BigInt(first), payload } });
    }
    await acked;
  };
  return {
    async enqueue(payloads) {
      const messages: Promise<void>[] = [];
      for (let first = 0; first < payloads.length; first += perMessage) {
        messages.push(send(payloads.slice(first, first + perMessage)));
      }
      await Promise.race([Promise.all(messages), failed]);
    },
    async close() {
      stream.end();
      client.close();
    },
  };
}

const BLANK: Omit<CreateTask, "seq" | "payload"> = {
  command: QUEUE,
  priority: 5,
  webhook: "",
  maxAttempts: 0,
  idempotencyKey: "",
  runAt: undefined,
  delaySeconds: 0,
  traceParent: "",
  traceState: "",
  deduplicationKey: "",
  taskId: "",
};

const writer = new BatchWriter(CREATE_BATCH);

function writeCreates(payloads: readonly Payload[], first: number): Buffer {
  writer.begin();
  for (const [place, payload] of payloads.entries()) {
    const seq = first + place;
    const json = JSON.stringify(payload);
    const bytes = Buffer.byteLength(json);
    writer.entry(1 + varintSize(seq) + fieldSize(QUEUE.length) + fieldSize(bytes) + 2);
    writer.number(SEQ, seq);
    writer.text(COMMAND, QUEUE, QUEUE.length);
    writer.text(PAYLOAD, json, bytes);
    writer.number(PRIORITY, BLANK.priority);
  }
  return writer.finish();
}

/** The last number of those that are acked; throws unless all of them were stored. */
function readAcks(bytes: Buffer): number {
  const reader = new FieldReader(bytes);
  reader.tag();
  reader.enter();
  let seq = 0;
  for (let tag = reader.tag(); tag !== 0; tag = reader.tag()) {
    if (tag !== ENTRY) throw new Error(`no ack has field ${tag >> 3}`);
    const outer = reader.enter();
    let isOk = false;
    for (let field = reader.tag(); field !== 0; field = reader.tag()) {
      if (field === SEQ) seq = Number(reader.uint64());
      else if (field === OK) isOk = reader.uint32() === 1;
      else reader.skip(field);
    }
    reader.leave(outer);
    if (!isOk) throw new Error(`the server refused create ${seq}`);
  }
  return seq;
}
