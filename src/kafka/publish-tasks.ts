import { ConfigError, InvalidInputError, messageOf } from "../base/errors.ts";
import { refuseUnknown, requireNumber, withoutUndefined } from "../base/options.ts";
import { requireText } from "../tasks/encode.ts";
import { describeEnd, type EndedTask } from "./ended-task.ts";
import { header, isTopic } from "./headers.ts";
import type { OutgoingMessage, RefusedMessage } from "./source.ts";

export interface PublishTasksOptions {
  /**
   * Of the publication: under it PostgreSQL knows what is published. Another name begins with the
   * tasks that end from then on.
   */
  readonly name: string;
  /** Where to: a topic, or a function that names one for each task, or none. */
  readonly topic: string | ((task: EndedTask) => string | undefined);
  /** Ends of one key are in order. Defaults to the key of the task, or its id if it has none. */
  readonly key?: (task: EndedTask) => string;
  /** What is sent. Defaults to JSON with everything about the task. */
  readonly value?: (task: EndedTask) => string | Uint8Array;
  /** Only tasks of these queues. Defaults to all. */
  readonly queues?: readonly string[];
  /** Whether payloads are told as well; they are stored once more until then. Defaults to false. */
  readonly payload?: boolean;
  /** Tasks that are published together. Defaults to 1,000. */
  readonly batchTasks?: number;
  /** Bytes of payloads, results and reasons that are read at once. Defaults to 4 MiB. */
  readonly batchBytes?: number;
  /**
   * How long others wait for a process that publishes and says nothing, before one of them takes
   * over. Defaults to 15.
   */
  readonly holdSeconds?: number;
  /** How long a stop waits for what is being published. Defaults to 30. */
  readonly drainSeconds?: number;
}

export interface ResolvedPublishTasks {
  readonly name: string;
  readonly topic: PublishTasksOptions["topic"];
  readonly key: PublishTasksOptions["key"];
  readonly value: PublishTasksOptions["value"];
  readonly queues: readonly string[] | undefined;
  readonly withPayload: boolean;
  readonly batchTasks: number;
  readonly batchBytes: number;
  readonly holdSeconds: number;
  readonly drainSeconds: number;
}

const KNOWN = [
  "name",
  "topic",
  "key",
  "value",
  "queues",
  "payload",
  "batchTasks",
  "batchBytes",
  "holdSeconds",
  "drainSeconds",
];
const NAME_BYTES_MAX = 200;
const COUNT_RANGE = { min: 1, max: 10_000, integer: true };
const BYTES_RANGE = { min: 1_024, max: 256 * 1024 * 1024, integer: true };
const HOLD_RANGE = { min: 1, max: 600 };
const DRAIN_RANGE = { min: 0, max: 3_600 };

/** Applies defaults and refuses nonsense. */
export function resolvePublishTasks(options: PublishTasksOptions): ResolvedPublishTasks {
  refuseUnknown("publication", options, KNOWN);
  const given = withoutUndefined(options);
  const { name = "", topic, queues, payload = false, key, value } = given;
  requireText("name", name, NAME_BYTES_MAX);
  requireTopic(topic);
  requireFunctions({ key, value });
  if (typeof payload !== "boolean") throw new ConfigError("payload must be true or false");
  if (queues !== undefined && (!Array.isArray(queues) || queues.length === 0)) {
    throw new ConfigError("queues must be a list of names; leave it out for all of them");
  }
  for (const queue of queues ?? []) requireText("queues", queue, NAME_BYTES_MAX);
  const { batchTasks = 1_000, batchBytes = 4 * 1024 * 1024 } = given;
  const { holdSeconds = 15, drainSeconds = 30 } = given;
  return {
    name,
    topic,
    key,
    value,
    queues: queues === undefined ? undefined : [...new Set(queues)],
    withPayload: payload,
    batchTasks: requireNumber("batchTasks", batchTasks, COUNT_RANGE),
    batchBytes: requireNumber("batchBytes", batchBytes, BYTES_RANGE),
    holdSeconds: requireNumber("holdSeconds", holdSeconds, HOLD_RANGE),
    drainSeconds: requireNumber("drainSeconds", drainSeconds, DRAIN_RANGE),
  };
}

/** Refuses what is neither a topic nor a function that gives one. */
export function requireTopic(topic: unknown): asserts topic is string | (() => unknown) {
  if (isTopic(topic) || typeof topic === "function") return;
  throw new ConfigError(
    'topic must be the name of a topic, with letters, digits, ".", "_" and "-" only, or a ' +
      "function that gives one",
  );
}

export function requireFunctions(given: Readonly<Record<string, unknown>>): void {
  for (const [option, one] of Object.entries(given)) {
    if (one === undefined || typeof one === "function") continue;
    throw new ConfigError(`${option} must be a function`);
  }
}

/** What a task becomes: a message, or nothing, or what is to be kept because none can be made. */
export type Told = OutgoingMessage | RefusedMessage | undefined;

/** A function of the user that throws says that the message cannot be made, and stops no other. */
export function tellOf(task: EndedTask, options: ResolvedPublishTasks): Told {
  const fallback = (): OutgoingMessage => ({
    topic: typeof options.topic === "string" ? options.topic : "",
    key: Buffer.from(task.partitionKey ?? task.id),
    value: Buffer.from(describeEnd(task)),
    headers: headersOf(task),
  });
  try {
    const { topic, key, value } = options;
    const name = typeof topic === "string" ? topic : topic(task);
    if (name === undefined) return undefined;
    if (!isTopic(name)) throw new InvalidInputError(`${JSON.stringify(name)} is not a topic`);
    return {
      topic: name,
      key: Buffer.from(key === undefined ? (task.partitionKey ?? task.id) : key(task)),
      value: Buffer.from(value === undefined ? describeEnd(task) : value(task)),
      headers: headersOf(task),
    };
  } catch (error) {
    return { message: fallback(), reason: `no message could be made of it: ${messageOf(error)}` };
  }
}

const headersOf = (task: EndedTask): OutgoingMessage["headers"] => [
  header("tidemill-end-position", String(task.position)),
  header("tidemill-task-id", task.id),
  header("tidemill-task-state", task.state),
  header("tidemill-task-queue", task.queue),
  header("tidemill-task-tenant", task.tenant),
  ...(task.traceParent === undefined ? [] : [header("traceparent", task.traceParent)]),
];
