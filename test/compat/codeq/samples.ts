import {
  CreateAck,
  CreateAckBatch,
  CreateTask,
  CreateTaskBatch,
  type MessageFns,
  ServerEvent as ProducerAnswer,
  ServerError as ProducerError,
  ProducerEvent,
  Hello as ProducerHello,
  HelloAck as ProducerHelloAck,
} from "../../../src/wire/generated/codeq/producer.ts";
import {
  Abandon,
  AbandonAck,
  Heartbeat,
  HeartbeatAck,
  Nack,
  NackAck,
  Ready,
  Result,
  ResultAck,
  ResultAckBatch,
  ResultBatch,
  Task,
  TaskAssignment,
  TaskBatch,
  ServerEvent as WorkerAnswer,
  ServerError as WorkerError,
  WorkerEvent,
  Hello as WorkerHello,
  HelloAck as WorkerHelloAck,
} from "../../../src/wire/generated/codeq/worker.ts";

/** What the tests need of a generated codec, whatever its message. */
export interface Codec {
  encode(message: object): Buffer;
  decode(bytes: Uint8Array): object;
}

export interface Sample {
  /** The message's full name, and what is special about it. */
  readonly name: string;
  readonly type: string;
  readonly codec: Codec;
  readonly message: object;
}

const codecOf = <T extends object>(fns: MessageFns<T>): Codec => ({
  encode: (message) => Buffer.from(fns.encode(message as T).finish()),
  decode: (bytes) => fns.decode(bytes),
});

function sample<T extends object>(
  type: string,
  fns: MessageFns<T>,
  variants: Readonly<Record<string, Parameters<MessageFns<T>["fromPartial"]>[0]>>,
): Sample[] {
  const codec = codecOf(fns);
  const all = { empty: fns.create(), ...variants };
  return Object.entries(all).map(([variant, partial]) => ({
    name: `${type}, ${variant}`,
    type,
    codec,
    message: fns.fromPartial(partial as Parameters<MessageFns<T>["fromPartial"]>[0]),
  }));
}

const BYTES = Buffer.from(Array.from({ length: 256 }, (_, index) => index));
const TEXT = "Gezeitenmühle 🌊 \u0000 \u2028";
const ACK = { taskId: "42", ok: true };
const REFUSAL = { taskId: "42", errorMessage: "not-owner" };
const INT32_MAX = 2 ** 31 - 1;
const UINT64_MAX = 2n ** 64n - 1n;

const TASK = {
  id: "9007199254740993",
  command: "send-email",
  payload: BYTES,
  priority: 9,
  webhook: "https://example.com/done",
  maxAttempts: INT32_MAX,
  status: "IN_PROGRESS",
  workerId: "worker-1",
  leaseUntil: "2026-01-02T03:04:05Z",
  attempts: 1,
  tenantId: "acme",
  createdAt: new Date("2026-01-02T03:04:05.678Z"),
  updatedAt: new Date("1969-12-31T23:59:59Z"),
};

const CREATE = {
  seq: UINT64_MAX,
  command: TEXT,
  payload: BYTES,
  priority: -1,
  webhook: "https://example.com/done",
  maxAttempts: 5,
  idempotencyKey: "once",
  runAt: new Date("2030-01-01T00:00:00Z"),
  delaySeconds: 60,
  traceParent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
  traceState: "a=b",
  deduplicationKey: "like",
  taskId: "chosen",
};

const WORKER: Sample[] = [
  ...sample("workerpb.Task", Task, {
    full: TASK,
    "the epoch": { createdAt: new Date(0) },
    "a negative number": { priority: -(2 ** 31) },
  }),
  ...sample("workerpb.Hello", WorkerHello, { full: { token: "t", workerId: TEXT } }),
  ...sample("workerpb.Ready", Ready, {
    full: { commands: ["a", "", "c"], leaseSeconds: 60, count: 8 },
  }),
  ...sample("workerpb.Result", Result, {
    full: { taskId: "42", status: "FAILED", resultJson: Buffer.from("{}"), error: TEXT },
    "without a body": { taskId: "42", status: "COMPLETED" },
  }),
  ...sample("workerpb.Nack", Nack, { full: { taskId: "42", delaySeconds: 30, reason: TEXT } }),
  ...sample("workerpb.Heartbeat", Heartbeat, { full: { taskId: "42", extendSeconds: 30 } }),
  ...sample("workerpb.Abandon", Abandon, { full: { taskId: "42" } }),
  ...sample("workerpb.ResultBatch", ResultBatch, {
    full: { results: [{ taskId: "1", status: "COMPLETED" }, {}, { taskId: "3", error: "no" }] },
  }),
  ...sample("workerpb.HelloAck", WorkerHelloAck, { full: { workerId: "w", tenantId: "acme" } }),
  ...sample("workerpb.TaskAssignment", TaskAssignment, {
    full: { task: TASK },
    "an empty task": { task: {} },
  }),
  ...sample("workerpb.TaskBatch", TaskBatch, { full: { tasks: [TASK, {}, { id: "3" }] } }),
  ...sample("workerpb.ResultAck", ResultAck, { done: ACK, refused: REFUSAL }),
  ...sample("workerpb.ResultAckBatch", ResultAckBatch, { full: { acks: [ACK, REFUSAL] } }),
  ...sample("workerpb.HeartbeatAck", HeartbeatAck, { done: ACK, refused: REFUSAL }),
  ...sample("workerpb.NackAck", NackAck, {
    done: { ...ACK, appliedDelaySeconds: 30, dlq: true },
    refused: REFUSAL,
  }),
  ...sample("workerpb.AbandonAck", AbandonAck, { done: ACK, refused: REFUSAL }),
  ...sample("workerpb.ServerError", WorkerError, {
    full: { message: "missing scope", code: "PermissionDenied" },
  }),
  ...sample("workerpb.WorkerEvent", WorkerEvent, {
    hello: { event: { $case: "hello", value: { token: "t" } } },
    "an empty hello": { event: { $case: "hello", value: {} } },
    ready: { event: { $case: "ready", value: { count: 1 } } },
    result: { event: { $case: "result", value: { taskId: "42" } } },
    nack: { event: { $case: "nack", value: { taskId: "42" } } },
    heartbeat: { event: { $case: "heartbeat", value: { taskId: "42" } } },
    abandon: { event: { $case: "abandon", value: { taskId: "42" } } },
    "result batch": { event: { $case: "resultBatch", value: { results: [{ taskId: "42" }] } } },
  }),
  ...sample("workerpb.ServerEvent", WorkerAnswer, {
    "hello ack": { event: { $case: "helloAck", value: { tenantId: "acme" } } },
    task: { event: { $case: "task", value: { task: TASK } } },
    "result ack": { event: { $case: "resultAck", value: ACK } },
    "heartbeat ack": { event: { $case: "heartbeatAck", value: ACK } },
    "nack ack": { event: { $case: "nackAck", value: ACK } },
    "abandon ack": { event: { $case: "abandonAck", value: ACK } },
    error: { event: { $case: "error", value: { message: "m", code: "c" } } },
    "task batch": { event: { $case: "taskBatch", value: { tasks: [TASK] } } },
    "result ack batch": { event: { $case: "resultAckBatch", value: { acks: [ACK] } } },
  }),
];

const PRODUCER: Sample[] = [
  ...sample("producerpb.Hello", ProducerHello, { full: { token: TEXT } }),
  ...sample("producerpb.CreateTask", CreateTask, {
    full: CREATE,
    "a payload alone": { payload: BYTES },
  }),
  ...sample("producerpb.CreateTaskBatch", CreateTaskBatch, { full: { tasks: [CREATE, {}] } }),
  ...sample("producerpb.HelloAck", ProducerHelloAck, { full: { tenantId: "acme", subject: "s" } }),
  ...sample("producerpb.CreateAck", CreateAck, {
    done: { seq: UINT64_MAX, ok: true, taskId: "42" },
    refused: { seq: 1n, errorMessage: "command is required" },
  }),
  ...sample("producerpb.CreateAckBatch", CreateAckBatch, {
    full: { acks: [{ seq: 1n, ok: true, taskId: "42" }, { seq: 2n }] },
  }),
  ...sample("producerpb.ServerError", ProducerError, {
    full: { message: "unknown-event", code: "InvalidArgument" },
  }),
  ...sample("producerpb.ProducerEvent", ProducerEvent, {
    hello: { event: { $case: "hello", value: { token: "t" } } },
    create: { event: { $case: "create", value: CREATE } },
    "an empty create": { event: { $case: "create", value: {} } },
    "create batch": { event: { $case: "createBatch", value: { tasks: [CREATE] } } },
  }),
  ...sample("producerpb.ServerEvent", ProducerAnswer, {
    "hello ack": { event: { $case: "helloAck", value: { subject: "s" } } },
    "create ack": { event: { $case: "createAck", value: { seq: 1n, ok: true } } },
    error: { event: { $case: "error", value: { code: "c", message: "m" } } },
    "create ack batch": { event: { $case: "createAckBatch", value: { acks: [{ seq: 1n }] } } },
  }),
];

/** Every message of both streams: empty, full, and whatever else may be read wrongly. */
export const SAMPLES: readonly Sample[] = [...WORKER, ...PRODUCER];

/** The JSON form that protobuf prescribes, without fields that have their default. */
export function toProtoJson(value: unknown): unknown {
  if (Buffer.isBuffer(value)) return value.toString("base64");
  if (typeof value === "bigint") return value.toString();
  if (value instanceof Date) return value.toISOString().replace(".000Z", "Z");
  if (Array.isArray(value)) return value.map(toProtoJson);
  if (typeof value !== "object" || value === null) return value;
  const entries = Object.entries(value).flatMap(([key, field]: [string, unknown]) => {
    if (isDefault(field)) return [];
    if (key === "event") {
      const { $case, value: body } = field as { $case: string; value: object };
      return [[$case, toProtoJson(body)]];
    }
    return [[key, toProtoJson(field)]];
  });
  return Object.fromEntries(entries);
}

function isDefault(field: unknown): boolean {
  if (Buffer.isBuffer(field) || Array.isArray(field)) return field.length === 0;
  return field === undefined || field === "" || field === 0 || field === 0n || field === false;
}
