import { Client, type ClientDuplexStream, credentials } from "@grpc/grpc-js";
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

/** Streams that take turns, each on a connection of its own; a create counts when it is acked. */
export async function openProducer(options: OpenOptions): Promise<Producer> {
  const { server: ports, perMessage = 1, purpose, streams: wanted = 1 } = options;
  if (ports === undefined) throw new Error("where is the server?");
  const count = purpose === "throughput" ? wanted : 1;
  const streams = await Promise.all(
    Array.from({ length: count }, () => ProducerStream.open(ports.producer)),
  );
  let turn = 0;
  const next = (): ProducerStream => {
    const stream = streams[turn % count];
    turn += 1;
    if (stream === undefined) throw new Error("there is no stream");
    return stream;
  };
  return {
    async enqueue(payloads) {
      const messages: Promise<void>[] = [];
      for (let first = 0; first < payloads.length; first += perMessage) {
        messages.push(next().send(payloads.slice(first, first + perMessage)));
      }
      await Promise.all(messages);
    },
    async close() {
      for (const stream of streams) stream.close();
    },
  };
}

/** Which has any number of messages under way. */
class ProducerStream {
  readonly #client: Client;
  readonly #stream: ClientDuplexStream<Buffer, Buffer>;
  readonly #waiting = new Map<number, () => void>();
  readonly #failed: Promise<never>;
  #fail: (error: Error) => void = () => {};
  #greet: () => void = () => {};
  #seq = 0;

  private constructor(port: number) {
    this.#client = new Client(`127.0.0.1:${port}`, credentials.createInsecure(), {
      ...CHANNEL_OPTIONS,
      "grpc.use_local_subchannel_pool": 1,
    });
    const { path } = ProducerStreamService.stream;
    this.#stream = this.#client.makeBidiStreamRequest(path, identity, identity);
    this.#failed = new Promise<never>((_, reject) => {
      this.#fail = reject;
    });
    this.#failed.catch(() => {});
    this.#stream.on("error", (error) => this.#fail(error));
    this.#stream.on("data", (bytes: Buffer) => this.#hear(bytes));
  }

  static async open(port: number): Promise<ProducerStream> {
    const opened = new ProducerStream(port);
    const greeted = new Promise<void>((resolve) => {
      opened.#greet = resolve;
    });
    opened.#say({ $case: "hello", value: { token: TOKEN } });
    await Promise.race([greeted, opened.#failed]);
    return opened;
  }

  /** One message. Acks of what is in it come together. */
  async send(payloads: readonly Payload[]): Promise<void> {
    const first = this.#seq + 1;
    this.#seq += payloads.length;
    const acked = new Promise<void>((resolve) => this.#waiting.set(this.#seq, resolve));
    if (payloads.length > 1) this.#stream.write(writeCreates(payloads, first));
    else {
      const payload = Buffer.from(JSON.stringify(payloads[0]));
      this.#say({ $case: "create", value: { ...BLANK, seq: BigInt(first), payload } });
    }
    await Promise.race([acked, this.#failed]);
  }

  close(): void {
    this.#stream.end();
    this.#client.close();
  }

  #say(event: ProducerEvent["event"]): void {
    this.#stream.write(Buffer.from(ProducerEvent.encode({ event }).finish()));
  }

  #hear(bytes: Buffer): void {
    if (bytes[0] === CREATE_ACK_BATCH) return this.#settle(readAcks(bytes));
    const { event } = ServerEvent.decode(bytes);
    if (event?.$case === "createAck" && event.value.ok) this.#settle(Number(event.value.seq));
    else if (event?.$case === "helloAck") this.#greet();
    else this.#fail(new Error(`the server said ${bytes.toString("latin1")}`));
  }

  #settle(seq: number): void {
    this.#waiting.get(seq)?.();
    this.#waiting.delete(seq);
  }
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
