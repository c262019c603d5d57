import { status } from "@grpc/grpc-js";
import { ForbiddenError } from "../../base/errors.ts";
import { IdempotencyConflictError } from "../../tasks/store.ts";
import { BatchWriter, fieldSize, varintSize } from "../../wire/batch-writer.ts";
import {
  type CreateAck,
  ProducerStreamService,
  ServerEvent,
} from "../../wire/generated/codeq/producer.ts";
import { failureOf } from "../failure.ts";
import { encoderOf } from "../grpc/encoder.ts";
import type { MessageShape } from "../grpc/measure.ts";
import { StreamError } from "../grpc/peer.ts";
import { codeqRefusal } from "../grpc/status.ts";
import { readEvent } from "./codeq-creates.ts";
import type { GivenCreate, Move, ProducerDialect } from "./dialect.ts";
import { ACK_BATCH_BYTES } from "./limits.ts";

const TIMESTAMP: MessageShape = {};
const CREATE: MessageShape = { 8: { fields: TIMESTAMP } };
const SHAPE: MessageShape = {
  1: { fields: {} },
  2: { fields: CREATE },
  3: { fields: { 1: { isEntry: true, fields: CREATE } } },
};

/** Fields with their kinds: of an event, and of an ack. */
const CREATE_ACK_BATCH = 0x22;
const SEQ = 0x08;
const OK = 0x10;
const TASK_ID = 0x1a;
const ERROR_MESSAGE = 0x22;

/** Acks come in batches, which are written by hand. */
type Said = ServerEvent | Buffer;
const encode = encoderOf(ServerEvent);

/** CodeQ's producer stream, as its Go client knows it: docs/reference/wire.md. */
export const codeqDialect: ProducerDialect<Move, Said> = {
  path: ProducerStreamService.stream.path,
  codec: {
    shape: SHAPE,
    decode: readEvent,
    encode: (said) => (Buffer.isBuffer(said) ? said : encode(said)),
  },
  // Its clients know of no limit, and wait for every ack.
  whenFull: "wait",
  heedsTopics: true,
  read: (move) => move,
  helloAck: ({ tenant, subject }) =>
    say({ $case: "helloAck", value: { tenantId: tenant, subject } }),
  answers,
  refused: (create, error) =>
    answers(
      create,
      create.tasks.map(() => error),
    ),
  alreadyKnown: () => sayError("FailedPrecondition", "already-authenticated"),
  unknown: () => sayError("InvalidArgument", "unknown-event"),
  drain: () => undefined,
  notHello: () => new StreamError(status.FAILED_PRECONDITION, "first event must be Hello"),
  unauthenticated: codeqRefusal,
  forbidden: () => new StreamError(status.PERMISSION_DENIED, "missing scope"),
};

const say = (event: NonNullable<ServerEvent["event"]>): ServerEvent => ({ event });

const sayError = (code: string, message: string): ServerEvent =>
  say({ $case: "error", value: { code, message } });

/** Results are ids, or what went wrong. */
function answers({ seqs, isBatch }: GivenCreate, results: readonly unknown[]): Said[] {
  if (isBatch) return toBatches(seqs, results);
  return seqs.map((seq, place) => say({ $case: "createAck", value: toAck(seq, results[place]) }));
}

function toAck(given: number | bigint, result: unknown): CreateAck {
  const seq = BigInt(given);
  if (typeof result === "string") return { seq, ok: true, taskId: result, errorMessage: "" };
  return { seq, ok: false, taskId: "", errorMessage: errorMessageOf(result) };
}

function errorMessageOf(error: unknown): string {
  if (error instanceof IdempotencyConflictError) return "idempotency conflict";
  if (error instanceof ForbiddenError) return "event type not allowed";
  return failureOf(error).message;
}

const writer = new BatchWriter(CREATE_ACK_BATCH);

/** Its clients go by numbers, so that a batch may be answered in several. */
function toBatches(seqs: readonly (number | bigint)[], results: readonly unknown[]): Buffer[] {
  const batches: Buffer[] = [];
  writer.begin();
  let bytes = 0;
  for (let place = 0; place < seqs.length; place += 1) {
    if (bytes > ACK_BATCH_BYTES) {
      batches.push(writer.finish());
      writer.begin();
      bytes = 0;
    }
    bytes += writeAck(seqs[place] ?? 0, results[place]);
  }
  if (seqs.length > 0) batches.push(writer.finish());
  return batches;
}

/** Gives how many bytes it took. */
function writeAck(seq: number | bigint, result: unknown): number {
  const seqBytes = seq === 0 ? 0 : 1 + varintSize(seq);
  const isStored = typeof result === "string";
  const text = isStored ? result : errorMessageOf(result);
  const textBytes = Buffer.byteLength(text);
  const bytes = seqBytes + (isStored ? 2 : 0) + (textBytes === 0 ? 0 : fieldSize(textBytes));
  writer.entry(bytes);
  if (seqBytes > 0) writer.number(SEQ, seq);
  if (isStored) writer.number(OK, 1);
  if (textBytes > 0) writer.text(isStored ? TASK_ID : ERROR_MESSAGE, text, textBytes);
  return bytes;
}
