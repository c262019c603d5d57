import { status } from "@grpc/grpc-js";
import { ForbiddenError, InvalidInputError } from "../../base/errors.ts";
import type { NewTask } from "../../tasks/new-task.ts";
import { IdempotencyConflictError } from "../../tasks/store.ts";
import {
  type CreateAck,
  type CreateTask,
  ProducerEvent,
  ProducerStreamService,
  ServerEvent,
} from "../../wire/generated/codeq/producer.ts";
import { isName } from "../auth/caller.ts";
import { failureOf } from "../failure.ts";
import { encoderOf } from "../grpc/encoder.ts";
import type { MessageShape } from "../grpc/measure.ts";
import { StreamError } from "../grpc/peer.ts";
import type { GivenCreate, GivenTask, Move, ProducerDialect } from "./dialect.ts";
import { ACK_BATCH_BYTES } from "./limits.ts";
import { jsonOf } from "./payload.ts";

const TIMESTAMP: MessageShape = {};
const CREATE: MessageShape = { 8: { fields: TIMESTAMP } };
const SHAPE: MessageShape = {
  1: { fields: {} },
  2: { fields: CREATE },
  3: { fields: { 1: { isEntry: true, fields: CREATE } } },
};

const PRIORITY_MAX = 9;

/** CodeQ's producer stream, as its Go client knows it: docs/reference/wire.md. */
export const codeqDialect: ProducerDialect<ProducerEvent, ServerEvent> = {
  path: ProducerStreamService.stream.path,
  codec: {
    shape: SHAPE,
    decode: (bytes) => ProducerEvent.decode(bytes),
    encode: encoderOf(ServerEvent),
  },
  // Its clients know of no limit, and wait for every ack.
  whenFull: "wait",
  read,
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
  unauthenticated: (error) =>
    new StreamError(status.UNAUTHENTICATED, `auth failed: ${error.message}`),
  forbidden: () => new StreamError(status.PERMISSION_DENIED, "missing scope"),
};

const say = (event: NonNullable<ServerEvent["event"]>): ServerEvent => ({ event });

const sayError = (code: string, message: string): ServerEvent =>
  say({ $case: "error", value: { code, message } });

function read({ event }: ProducerEvent): Move {
  switch (event?.$case) {
    case "hello":
      return { kind: "hello", hello: { token: event.value.token, producerId: "" } };
    case "create":
      return { kind: "create", create: toCreate([event.value], false) };
    case "createBatch":
      return { kind: "create", create: toCreate(event.value.tasks, true) };
    default:
      return { kind: "unknown" };
  }
}

function toCreate(tasks: readonly CreateTask[], isBatch: boolean): GivenCreate {
  const seqs = tasks.map(({ seq }) => seq);
  return { seq: seqs[0] ?? 0n, seqs, tasks: tasks.map(toTask), isAtomic: false, isBatch };
}

function toTask(given: CreateTask): GivenTask {
  const { command, payload, delaySeconds, runAt, maxAttempts } = given;
  if (command.trim() === "") return new InvalidInputError("command is required");
  if (!isName(command)) return new InvalidInputError("invalid command");
  if (delaySeconds < 0) return new InvalidInputError("delaySeconds must be >= 0");
  if (given.webhook !== "" && !isHttpUrl(given.webhook)) {
    return new InvalidInputError("invalid webhook url");
  }
  const key = keyOf(given);
  if (key instanceof InvalidInputError) return key;
  const json = payload.length === 0 ? null : jsonOf(payload);
  const task: NewTask = {
    payload: json === undefined ? payload : json,
    priority: Math.min(PRIORITY_MAX, Math.max(0, given.priority)),
    ...(maxAttempts > 0 ? { maxAttempts } : {}),
    ...(key === "" ? {} : { idempotencyKey: key }),
    ...(given.webhook === "" ? {} : { webhook: given.webhook }),
    ...(given.traceParent === "" ? {} : { traceParent: given.traceParent }),
    ...(given.traceState === "" ? {} : { traceState: given.traceState }),
    ...(runAt === undefined ? (delaySeconds > 0 ? { delaySeconds } : {}) : { runAt }),
  };
  return { queue: command, task };
}

function keyOf(given: CreateTask): string | InvalidInputError {
  const { idempotencyKey, deduplicationKey, taskId } = given;
  if (taskId !== "") {
    return new InvalidInputError("task_id is not taken: the server numbers tasks; use a key");
  }
  if (idempotencyKey !== "" && deduplicationKey !== "") {
    return new InvalidInputError("give idempotency_key or deduplication_key, not both");
  }
  return idempotencyKey === "" ? deduplicationKey : idempotencyKey;
}

function isHttpUrl(text: string): boolean {
  return URL.canParse(text) && /^https?:$/.test(new URL(text).protocol);
}

/** Results are ids, or what went wrong. */
function answers({ seqs, isBatch }: GivenCreate, results: readonly unknown[]): ServerEvent[] {
  const acks = seqs.map((seq, place) => toAck(seq, results[place]));
  if (!isBatch) return acks.map((value) => say({ $case: "createAck", value }));
  return inBatches(acks).map((some) => say({ $case: "createAckBatch", value: { acks: some } }));
}

function toAck(seq: bigint, result: unknown): CreateAck {
  if (typeof result === "string") return { seq, ok: true, taskId: result, errorMessage: "" };
  return { seq, ok: false, taskId: "", errorMessage: errorMessageOf(result) };
}

function errorMessageOf(error: unknown): string {
  if (error instanceof IdempotencyConflictError) return "idempotency conflict";
  if (error instanceof ForbiddenError) return "event type not allowed";
  return failureOf(error).message;
}

/** Its clients go by numbers, so that a batch may be answered in several. */
function inBatches(acks: readonly CreateAck[]): CreateAck[][] {
  const batches: CreateAck[][] = [];
  let bytes = Infinity;
  for (const ack of acks) {
    const size = 32 + ack.taskId.length + Buffer.byteLength(ack.errorMessage);
    if (bytes + size > ACK_BATCH_BYTES) {
      batches.push([]);
      bytes = 0;
    }
    batches.at(-1)?.push(ack);
    bytes += size;
  }
  return batches;
}
