import { Client, type ClientDuplexStream, credentials } from "@grpc/grpc-js";
import { BatchWriter, fieldSize } from "../../src/wire/batch-writer.ts";
import { FieldReader } from "../../src/wire/field-reader.ts";
import {
  ServerEvent,
  type Task,
  WorkerEvent,
  WorkerStreamService,
} from "../../src/wire/generated/codeq/worker.ts";
import type { OpenOptions } from "../tasks/protocol.ts";
import type { Closeable, Handler, Payload } from "../tasks/role.ts";
import { CHANNEL_OPTIONS, QUEUE, TOKEN } from "./token.ts";

/** As many messages of tasks as one stream has under way. */
const READIES = 16;
/** Streams that are opened at once: a server turns away strangers who come in crowds. */
const AT_ONCE = 100;
const COMPLETED = "COMPLETED";

/** Fields with their kinds: of events, of a task, of a result. */
const TASK_BATCH = 0x42;
const RESULT_BATCH = 0x3a;
const RESULT_ACK_BATCH = 0x4a;
const ENTRY = 0x0a;
const ID = 0x0a;
const PAYLOAD = 0x1a;
const STATUS = 0x12;
const RESULT_JSON = 0x1a;
const OK = 0x10;

const identity = (bytes: Buffer): Buffer => bytes;

/**
 * Streams that run tasks as they come, each end with a body and acked. Each has a connection of its
 * own, as workers on many machines have, or nobody would see what connections cost the server.
 */
export async function openWorker(options: OpenOptions, handler: Handler): Promise<Closeable> {
  const { server: ports, streams = 1 } = options;
  if (ports === undefined) throw new Error("where is the server?");
  const { path } = WorkerStreamService.stream;
  const clients: Client[] = [];
  const open = (): WorkerStream => {
    const client = new Client(`127.0.0.1:${ports.worker}`, credentials.createInsecure(), {
      ...CHANNEL_OPTIONS,
      "grpc.use_local_subchannel_pool": 1,
    });
    clients.push(client);
    return client.makeBidiStreamRequest(path, identity, identity);
  };
  const all: WorkerStream[] = [];
  while (all.length < streams) {
    const next = Array.from({ length: Math.min(AT_ONCE, streams - all.length) }, () =>
      openStream(open(), options, handler),
    );
    all.push(...(await Promise.all(next)));
  }
  return {
    async close() {
      for (const stream of all) stream.end();
      for (const client of clients) client.close();
    },
  };
}

type WorkerStream = ClientDuplexStream<Buffer, Buffer>;

/** Resolves when the server has greeted it. */
async function openStream(
  stream: WorkerStream,
  { perMessage = 1, streams = 1 }: OpenOptions,
  handler: Handler,
): Promise<WorkerStream> {
  const bytesOf = (event: WorkerEvent["event"]): Buffer =>
    Buffer.from(WorkerEvent.encode({ event }).finish());
  const say = (event: WorkerEvent["event"]): void => void stream.write(bytesOf(event));
  const wanted = { commands: [QUEUE], leaseSeconds: 0, count: perMessage };
  const readyBytes = bytesOf({ $case: "ready", value: wanted });
  const ready = (): void => void stream.write(readyBytes);
  const runBatch = async (bytes: Buffer): Promise<void> => {
    const { ids, payloads } = readTasks(bytes);
    const results: unknown[] = [];
    for (const payload of payloads) {
      await handler(payload);
      results.push({ ok: true });
    }
    stream.write(writeResults(ids, results));
    ready();
  };
  const runOne = async (task: Task | undefined): Promise<void> => {
    if (task === undefined) throw new Error("an assignment without a task");
    await handler(JSON.parse(task.payload.toString()) as Payload);
    const resultJson = Buffer.from(JSON.stringify({ ok: true }));
    say({
      $case: "result",
      value: { taskId: task.id, status: COMPLETED, resultJson, error: "" },
    });
    ready();
  };
  return await new Promise((resolve, reject) => {
    stream.on("error", reject);
    stream.on("data", (bytes: Buffer) => {
      if (bytes[0] === TASK_BATCH) return void runBatch(bytes);
      if (bytes[0] === RESULT_ACK_BATCH) return checkAcks(bytes);
      const { event } = ServerEvent.decode(bytes);
      if (event?.$case === "task") void runOne(event.value.task);
      else if (event?.$case === "helloAck") {
        for (let n = 0; n < (streams > 1 ? 1 : READIES); n += 1) ready();
        resolve(stream);
      } else if (event?.$case === "error") reject(new Error(event.value.message));
    });
    say({ $case: "hello", value: { token: TOKEN, workerId: "" } });
  });
}

function readTasks(bytes: Buffer): { ids: string[]; payloads: Payload[] } {
  const ids: string[] = [];
  const payloads: Payload[] = [];
  forEntries(bytes, (reader, tag) => {
    if (tag === ID) ids.push(reader.text());
    else if (tag === PAYLOAD) payloads.push(JSON.parse(reader.text()) as Payload);
    else reader.skip(tag);
  });
  return { ids, payloads };
}

/** A figure of ends that were not accepted would be wrong. */
function checkAcks(bytes: Buffer): void {
  forEntries(bytes, (reader, tag) => {
    if (tag !== ID && tag !== OK) throw new Error("the server refused a result");
    reader.skip(tag);
  });
}

function forEntries(bytes: Buffer, read: (reader: FieldReader, tag: number) => void): void {
  const reader = new FieldReader(bytes);
  reader.tag();
  reader.enter();
  for (let tag = reader.tag(); tag !== 0; tag = reader.tag()) {
    if (tag !== ENTRY) throw new Error(`no batch has field ${tag >> 3}`);
    const outer = reader.enter();
    for (let field = reader.tag(); field !== 0; field = reader.tag()) read(reader, field);
    reader.leave(outer);
  }
}

const writer = new BatchWriter(RESULT_BATCH);

function writeResults(ids: readonly string[], results: readonly unknown[]): Buffer {
  writer.begin();
  for (const [place, id] of ids.entries()) {
    const json = JSON.stringify(results[place]);
    const bytes = Buffer.byteLength(json);
    writer.entry(fieldSize(id.length) + fieldSize(COMPLETED.length) + fieldSize(bytes));
    writer.text(ID, id, id.length);
    writer.text(STATUS, COMPLETED, COMPLETED.length);
    writer.text(RESULT_JSON, json, bytes);
  }
  return writer.finish();
}
