import { ConfigError } from "../base/errors.ts";
import { refuseUnknown, requireNumber, requireOneOf, withoutUndefined } from "../base/options.ts";
import { requireText } from "../tasks/encode.ts";
import { type Priority, priorityNumber } from "../tasks/priority.ts";
import type { JobRules, KafkaJob, PlacedMessage } from "./job.ts";

export interface IngestTopic {
  readonly topic: string;
  /** Of its tasks, unless a job says another. Defaults to "normal". */
  readonly priority?: Priority;
}

export interface KafkaIngestOptions {
  /**
   * Under which the offsets are stored. Another name reads everything again, and two clusters need
   * two names.
   *
   * Defaults to "default".
   */
  readonly source?: string;
  /** Topics are `<prefix>.jobs.high`, `<prefix>.jobs.normal` and `<prefix>.jobs.low`. */
  readonly prefix?: string;
  /** Topics by their names, instead of `prefix`. */
  readonly topics?: readonly IngestTopic[];
  /** Of the consumer groups: each topic has one, `<group>.<topic>`. Defaults to "tidemill". */
  readonly group?: string;
  /** Makes topics that are missing. Defaults to false: they are reported, and waited for. */
  readonly createTopics?: boolean;
  /** Of topics that are made. Defaults to 6. */
  readonly topicPartitions?: number;
  /** Of topics that are made; -1 leaves it to the brokers. Defaults to -1. */
  readonly topicReplicas?: number;
  /**
   * Where a topic is begun that was never seen: at its first message, or behind its last. A topic
   * that was made again, and partitions that were added, are always read from the first.
   *
   * Defaults to "earliest".
   */
  readonly startFrom?: "earliest" | "latest";
  /**
   * What to do when Kafka has removed messages that were not read yet: "stop" leaves the partition
   * alone until a person decides, "continue" goes on with the oldest that is left.
   *
   * Defaults to "stop".
   */
  readonly onDataLoss?: "stop" | "continue";
  /**
   * Reads with a client that takes a topic for another one of the same name, as `kafkajs` does.
   * Of a topic that was deleted and made again, messages are then skipped without a word, up to the
   * offset that was reached in the old one. For who never does that.
   *
   * Defaults to false: such a client is refused.
   */
  readonly allowUnnoticedRecreation?: boolean;
  /** Of jobs that name no queue. Defaults to none: such jobs are dead. */
  readonly queue?: string;
  /** Of jobs that name no tenant; jobs of others are dead. Defaults to any, and "default". */
  readonly tenant?: string;
  /** Takes the key of a message for that of its task, if the job names none. Defaults to false. */
  readonly keyOfMessage?: boolean;
  /** Reads messages that are not the JSON of a job. What it throws is why a message is dead. */
  readonly decode?: (message: PlacedMessage) => KafkaJob;
  /** Queues that one tenant may introduce and nobody has defined. Defaults to 200. */
  readonly queuesPerTenantMax?: number;
  /** Where dead messages are published. Defaults to none: they are kept in a table. */
  readonly deadLetterTopic?: string;
  /** How long dead messages are kept in the table. Defaults to 30. */
  readonly deadDays?: number;
  /** Messages of one transaction. Defaults to 1,000. */
  readonly batchMessages?: number;
  /** Their bytes. A larger message comes alone. Defaults to 4 MiB. */
  readonly batchBytes?: number;
  /** Messages of one topic that may wait in memory. Defaults to 10,000. */
  readonly bufferMessages?: number;
  /** Their bytes. One fetch of each partition may come on top. Defaults to 16 MiB. */
  readonly bufferBytes?: number;
  /** Of one fetch of one partition. Defaults to 1 MiB. */
  readonly fetchBytes?: number;
  /** How long a member that says nothing is waited for by its group. Defaults to 30. */
  readonly sessionSeconds?: number;
  /** How often topics are looked at: whether they were made again, or grew. Defaults to 10. */
  readonly topicCheckSeconds?: number;
  /**
   * How long a stop waits for the transactions under way and for the brokers, which must be told.
   *
   * Defaults to 30.
   */
  readonly drainSeconds?: number;
}

export interface ResolvedIngestTopic {
  readonly topic: string;
  readonly priority: Priority;
}

export interface ResolvedIngestOptions {
  readonly source: string;
  readonly topics: readonly ResolvedIngestTopic[];
  readonly group: string;
  readonly createTopics: boolean;
  readonly topicPartitions: number;
  readonly topicReplicas: number;
  readonly startFrom: "earliest" | "latest";
  readonly onDataLoss: "stop" | "continue";
  readonly allowUnnoticedRecreation: boolean;
  readonly rules: JobRules;
  readonly queuesPerTenantMax: number;
  readonly deadLetterTopic: string | undefined;
  readonly deadDays: number;
  readonly batchMessages: number;
  readonly batchBytes: number;
  readonly bufferMessages: number;
  readonly bufferBytes: number;
  readonly fetchBytes: number;
  readonly sessionSeconds: number;
  readonly topicCheckSeconds: number;
  readonly drainSeconds: number;
}

const MIB = 1024 * 1024;
const whole = (min: number, max: number): { min: number; max: number; integer: true } => ({
  min,
  max,
  integer: true,
});

/** Each with its default and what it may be. */
const NUMBERS = {
  topicPartitions: [6, whole(1, 10_000)],
  topicReplicas: [-1, whole(-1, 100)],
  queuesPerTenantMax: [200, whole(0, 100_000)],
  deadDays: [30, whole(1, 3_650)],
  batchMessages: [1_000, whole(1, 10_000)],
  batchBytes: [4 * MIB, whole(1_024, 64 * MIB)],
  bufferMessages: [10_000, whole(1, 1_000_000)],
  bufferBytes: [16 * MIB, whole(1_024, 1_024 * MIB)],
  fetchBytes: [MIB, whole(1_024, 64 * MIB)],
  sessionSeconds: [30, { min: 1, max: 300 }],
  topicCheckSeconds: [10, { min: 0.1, max: 3_600 }],
  drainSeconds: [30, { min: 0, max: 3_600 }],
} as const;

const KNOWN = [
  "source",
  "prefix",
  "topics",
  "group",
  "createTopics",
  "startFrom",
  "onDataLoss",
  "allowUnnoticedRecreation",
  "queue",
  "tenant",
  "keyOfMessage",
  "decode",
  "deadLetterTopic",
  ...Object.keys(NUMBERS),
];

const PRIORITIES = ["high", "normal", "low"] as const;
const NAME_BYTES_MAX = 200;
const TOPICS_MAX = 100;

/** Applies defaults and refuses nonsense at the start, where a person is watching. */
export function resolveIngestOptions(options: KafkaIngestOptions): ResolvedIngestOptions {
  refuseUnknown("Kafka ingest", options, KNOWN);
  const given = withoutUndefined(options);
  const number = (name: keyof typeof NUMBERS): number => {
    const [fallback, rule] = NUMBERS[name];
    return requireNumber(name, given[name] ?? fallback, rule);
  };
  const { queue, tenant, decode, deadLetterTopic, source = "default" } = given;
  for (const [name, text] of Object.entries({ source, queue, tenant })) {
    if (text !== undefined) requireConfigText(name, text);
  }
  if (decode !== undefined && typeof decode !== "function") {
    throw new ConfigError("decode must be a function");
  }
  if (deadLetterTopic !== undefined) requireTopic("deadLetterTopic", deadLetterTopic);
  const topics = resolveTopics(given);
  if (topics.some(({ topic }) => topic === deadLetterTopic)) {
    throw new ConfigError("deadLetterTopic must not be one of the topics that are read");
  }
  return Object.freeze({
    source,
    topics,
    group: requireTopic("group", given.group ?? "tidemill"),
    createTopics: requireBoolean("createTopics", given.createTopics),
    startFrom: requireOneOf("startFrom", given.startFrom ?? "earliest", ["earliest", "latest"]),
    onDataLoss: requireOneOf("onDataLoss", given.onDataLoss ?? "stop", ["stop", "continue"]),
    allowUnnoticedRecreation: requireBoolean(
      "allowUnnoticedRecreation",
      given.allowUnnoticedRecreation,
    ),
    rules: {
      queue,
      tenant,
      keyOfMessage: requireBoolean("keyOfMessage", given.keyOfMessage),
      decode,
    },
    deadLetterTopic,
    topicPartitions: number("topicPartitions"),
    topicReplicas: number("topicReplicas"),
    queuesPerTenantMax: number("queuesPerTenantMax"),
    deadDays: number("deadDays"),
    batchMessages: number("batchMessages"),
    batchBytes: number("batchBytes"),
    bufferMessages: number("bufferMessages"),
    bufferBytes: number("bufferBytes"),
    fetchBytes: number("fetchBytes"),
    sessionSeconds: number("sessionSeconds"),
    topicCheckSeconds: number("topicCheckSeconds"),
    drainSeconds: number("drainSeconds"),
  });
}

function resolveTopics({ prefix, topics }: KafkaIngestOptions): ResolvedIngestTopic[] {
  if ((prefix === undefined) === (topics === undefined)) {
    throw new ConfigError(
      'give prefix, such as "foreman" for foreman.jobs.high, .normal and .low, or topics; not both',
    );
  }
  if (prefix !== undefined) {
    requireTopic("prefix", prefix);
    return PRIORITIES.map((priority) => ({ topic: `${prefix}.jobs.${priority}`, priority }));
  }
  if (!Array.isArray(topics) || topics.length === 0 || topics.length > TOPICS_MAX) {
    throw new ConfigError(
      `topics must be a list of 1 to ${TOPICS_MAX} such as [{ topic: "jobs" }]`,
    );
  }
  const resolved = (topics as readonly IngestTopic[]).map((one) => {
    refuseUnknown("topics", one, ["topic", "priority"]);
    const { topic, priority = "normal" } = one;
    priorityNumber(priority);
    return { topic: requireTopic("topics", topic), priority };
  });
  if (new Set(resolved.map(({ topic }) => topic)).size < resolved.length) {
    throw new ConfigError("topics has one topic twice");
  }
  return resolved;
}

/** As Kafka has it. */
function requireTopic(name: string, value: unknown): string {
  const isName = typeof value === "string" && /^[A-Za-z0-9._-]{1,200}$/.test(value);
  if (isName && value !== "." && value !== "..") return value;
  throw new ConfigError(
    `${name} must have letters, digits, ".", "_" and "-" only, at most 200 of them, not ` +
      JSON.stringify(value),
  );
}

function requireConfigText(name: string, value: unknown): void {
  try {
    requireText(name, value, NAME_BYTES_MAX);
  } catch (error) {
    throw new ConfigError((error as Error).message, { cause: error });
  }
}

function requireBoolean(name: string, value: unknown = false): boolean {
  if (typeof value === "boolean") return value;
  throw new ConfigError(`${name} must be true or false, not ${JSON.stringify(value)}`);
}
