import { status } from "@grpc/grpc-js";
import { InvalidInputError } from "../../base/errors.ts";
import type { JsonText } from "../../base/json-text.ts";
import { VERSION } from "../../base/version.ts";
import type { NewTask, TaskOptions } from "../../tasks/new-task.ts";
import {
  type Backoff,
  type Create,
  type CreateResult,
  FromProducer,
  ProducerStreamService,
  type NewTask as SentTask,
  ToProducer,
} from "../../wire/generated/tidemill/v1/producer.ts";
import { isName } from "../auth/caller.ts";
import { failureOf } from "../failure.ts";
import { encoderOf } from "../grpc/encoder.ts";
import type { MessageShape } from "../grpc/measure.ts";
import { MESSAGE_BYTES_MAX, StreamError } from "../grpc/peer.ts";
import type { GivenCreate, GivenTask, Move, ProducerDialect } from "./dialect.ts";
import { CREATES_MAX, TASKS_MAX } from "./limits.ts";
import { jsonOf } from "./payload.ts";

const TASK: MessageShape = { 7: { fields: {} }, 10: { fields: {} } };
const SHAPE: MessageShape = {
  1: { fields: { 3: { fields: { 3: { isEntry: true } } } } },
  2: { fields: { 2: { isEntry: true, fields: TASK } } },
};

const JSON_TYPE = "application/json";

/** Tidemill's own producer stream: proto/tidemill/v1/producer.proto. */
export const tidemillDialect: ProducerDialect<FromProducer, ToProducer> = {
  path: ProducerStreamService.stream.path,
  codec: {
    shape: SHAPE,
    decode: (bytes) => FromProducer.decode(bytes),
    encode: encoderOf(ToProducer),
  },
  whenFull: "refuse",
  heedsTopics: false,
  read,
  helloAck: ({ tenant, subject }) =>
    say({
      $case: "helloAck",
      value: {
        tenant,
        subject,
        server: { name: "tidemill", version: VERSION, capabilities: [] },
        createsMax: CREATES_MAX,
        tasksMax: TASKS_MAX,
        messageBytesMax: MESSAGE_BYTES_MAX,
      },
    }),
  answers: ({ seq }, results) => [
    say({ $case: "createAck", value: { seq, results: results.map(toResult) } }),
  ],
  refused: ({ seq }, error) => [refused(seq, error)],
  alreadyKnown: () => refused(0n, new InvalidInputError("a stream has one hello")),
  unknown: () => refused(0n, new InvalidInputError("this message is not known here")),
  drain: (graceMs) =>
    say({
      $case: "drain",
      value: { graceSeconds: graceMs / 1000, reason: "the server is stopping" },
    }),
  notHello: () => new StreamError(status.INVALID_ARGUMENT, "the first message must be a hello"),
  unauthenticated: (error) => new StreamError(status.UNAUTHENTICATED, error.message),
  forbidden: () => new StreamError(status.PERMISSION_DENIED, 'this token lacks scope "producer"'),
};

const say = (message: NonNullable<ToProducer["message"]>): ToProducer => ({ message });

const refused = (requestId: bigint, error: unknown): ToProducer =>
  say({ $case: "refused", value: { requestId, failure: failureOf(error) } });

function toResult(result: unknown): CreateResult {
  return typeof result === "string"
    ? { result: { $case: "taskId", value: result } }
    : { result: { $case: "failure", value: failureOf(result) } };
}

function read({ message }: FromProducer, producerId: string): Move {
  switch (message?.$case) {
    case "hello": {
      const { token, producerId: id } = message.value;
      return { kind: "hello", hello: { token, producerId: id } };
    }
    case "create":
      return { kind: "create", create: toCreate(message.value, producerId) };
    default:
      return { kind: "unknown" };
  }
}

function toCreate({ seq, tasks, isAtomic }: Create, producerId: string): GivenCreate {
  const given = tasks.map((task, place) => {
    const key = producerId === "" ? "" : `${producerId}:${seq}:${place}`;
    return toTask(task, key);
  });
  return { seq, seqs: [], tasks: given, isAtomic, isBatch: true };
}

/** @param automaticKey used when the task has no key of its own; "" for none */
function toTask(sent: SentTask, automaticKey: string): GivenTask {
  if (!isName(sent.queue)) {
    return new InvalidInputError(
      "queue must be a name of 1 to 200 bytes, without control characters or blanks at the ends",
    );
  }
  const payload = payloadOf(sent);
  if (payload instanceof InvalidInputError) return payload;
  const { runAt, delaySeconds } = sent;
  if (runAt !== undefined && delaySeconds !== 0) {
    return new InvalidInputError("give run_at or delay_seconds, not both");
  }
  const key = sent.idempotencyKey === "" ? automaticKey : sent.idempotencyKey;
  const options: TaskOptions = {
    ...texts(sent),
    ...(payload instanceof Uint8Array ? { contentType: sent.contentType } : {}),
    ...(sent.priority === undefined ? {} : { priority: sent.priority }),
    ...(runAt === undefined ? {} : { runAt }),
    ...(delaySeconds === 0 ? {} : { delaySeconds }),
    ...(sent.maxAttempts === 0 ? {} : { maxAttempts: sent.maxAttempts }),
    ...(sent.backoff === undefined ? {} : { backoff: toBackoff(sent.backoff) }),
    ...(sent.timeoutSeconds === 0 ? {} : { timeoutSeconds: sent.timeoutSeconds }),
    ...(key === "" ? {} : { idempotencyKey: key }),
    ...(sent.idempotencySeconds === 0 ? {} : { idempotencySeconds: sent.idempotencySeconds }),
  };
  return { queue: sent.queue, payload, options };
}

/** An empty text is one that was not given. */
function texts(sent: SentTask): TaskOptions {
  const { kind, partitionKey, webhook, traceParent, traceState } = sent;
  const given = Object.entries({ kind, partitionKey, webhook, traceParent, traceState });
  return Object.fromEntries(given.filter(([, text]) => text !== ""));
}

function payloadOf({ contentType, payload }: SentTask): JsonText | Uint8Array | InvalidInputError {
  if (contentType !== "" && contentType !== JSON_TYPE) return payload;
  return (
    jsonOf(payload) ??
    new InvalidInputError("the payload is not JSON; give content_type for other payloads")
  );
}

/** Kinds that are not known are refused where all options of a task are checked. */
function toBackoff({ kind, baseSeconds, maxSeconds }: Backoff): NonNullable<NewTask["backoff"]> {
  return {
    ...(kind === "" ? {} : { kind: kind as NonNullable<NewTask["backoff"]>["kind"] }),
    ...(baseSeconds === undefined ? {} : { baseSeconds }),
    ...(maxSeconds === undefined ? {} : { maxSeconds }),
  } as NonNullable<NewTask["backoff"]>;
}
