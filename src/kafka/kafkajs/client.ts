import type { Admin, IHeaders, Kafka, Producer, SASLOptions } from "kafkajs";
import { UnavailableError } from "../../base/errors.ts";
import { uuidOf } from "../../base/uuid.ts";
import { describeError } from "../client-errors.ts";
import type { KafkaSaslOptions, ResolvedKafkaOptions } from "../connect-options.ts";
import type {
  KafkaClient,
  KafkaHeader,
  Membership,
  NewTopic,
  OffsetRange,
  OutgoingMessage,
  Subscription,
  TopicDescription,
} from "../source.ts";
import { KafkaJsMember } from "./member.ts";

const RETRY = { retries: 3, initialRetryTime: 200, maxRetryTime: 2_000 };
const CONNECT_MS = 5_000;
const ALL_REPLICAS = -1;

/**
 * Kafka through `kafkajs`, which must be installed. It knows no ids of topics, so offsets are
 * stored under one made of the name: a topic that was made again is not noticed.
 */
export class KafkaJsClient implements KafkaClient {
  readonly #kafka: Kafka;
  #admin: Promise<Admin> | undefined;
  #producer: Promise<Producer> | undefined;
  #sending: Promise<unknown> = Promise.resolve();

  private constructor(kafka: Kafka) {
    this.#kafka = kafka;
  }

  static async open(given: ResolvedKafkaOptions): Promise<KafkaJsClient> {
    const library = await import("kafkajs");
    const { brokers, clientId, tls, sasl, requestMs } = given;
    return new KafkaJsClient(
      new library.Kafka({
        brokers: [...brokers],
        clientId,
        requestTimeout: requestMs,
        connectionTimeout: Math.min(CONNECT_MS, requestMs),
        retry: RETRY,
        logLevel: library.logLevel.NOTHING,
        ...(tls === undefined ? {} : { ssl: tls }),
        ...(sasl === undefined ? {} : { sasl: toSasl(sasl) }),
      }),
    );
  }

  async describeTopics(topics: readonly string[]): Promise<ReadonlyMap<string, TopicDescription>> {
    const found = await Promise.all(topics.map((topic) => this.#describe(topic)));
    return new Map(found.flat());
  }

  async #describe(topic: string): Promise<[string, TopicDescription][]> {
    try {
      const admin = await this.#adminClient();
      const { topics } = await admin.fetchTopicMetadata({ topics: [topic] });
      const known = topics.find(({ name }) => name === topic);
      if (known === undefined) return [];
      const topicId = uuidOf(`kafkajs ${topic}`);
      return [[topic, { topicId, partitions: known.partitions.length }]];
    } catch (error) {
      if ((error as { type?: unknown }).type === "UNKNOWN_TOPIC_OR_PARTITION") return [];
      throw unavailable(`describe topic ${topic}`, error);
    }
  }

  async createTopics(topics: readonly NewTopic[]): Promise<void> {
    try {
      const admin = await this.#adminClient();
      await admin.createTopics({
        waitForLeaders: true,
        topics: topics.map(({ topic, partitions, replicas }) => ({
          topic,
          numPartitions: partitions,
          replicationFactor: replicas,
        })),
      });
    } catch (error) {
      throw unavailable("make topics", error);
    }
  }

  async listOffsets(topic: string, partitions: number): Promise<readonly OffsetRange[]> {
    try {
      const admin = await this.#adminClient();
      const found = await admin.fetchTopicOffsets(topic);
      return Array.from({ length: partitions }, (_, partition) => {
        const one = found.find((offsets) => offsets.partition === partition);
        if (one === undefined) throw new UnavailableError(`partition ${partition} is not there`);
        return { earliest: BigInt(one.low), latest: BigInt(one.high) };
      });
    } catch (error) {
      throw unavailable(`list offsets of ${topic}`, error);
    }
  }

  async join(subscription: Subscription): Promise<Membership> {
    const { groupId, sessionTimeoutMs, fetchBytes } = subscription;
    const consumer = this.#kafka.consumer({
      groupId,
      sessionTimeout: sessionTimeoutMs,
      rebalanceTimeout: sessionTimeoutMs,
      heartbeatInterval: sessionTimeoutMs / 10,
      maxBytesPerPartition: fetchBytes,
      maxWaitTimeInMs: 250,
      allowAutoTopicCreation: false,
      readUncommitted: false,
      retry: { ...RETRY, restartOnFailure: () => Promise.resolve(false) },
    });
    const member = new KafkaJsMember(consumer, subscription);
    try {
      await member.join();
      return member;
    } catch (error) {
      await member.leave();
      throw unavailable(`join group ${groupId}`, error);
    }
  }

  /** One call at a time: a second one that overtakes the first would change the order of a key. */
  async publish(messages: readonly OutgoingMessage[]): Promise<void> {
    const sent = this.#sending.then(() => this.#send(messages));
    this.#sending = sent.catch(() => {});
    await sent;
  }

  async #send(messages: readonly OutgoingMessage[]): Promise<void> {
    if (messages.length === 0) return;
    const byTopic = new Map<string, OutgoingMessage[]>();
    for (const message of messages) {
      const others = byTopic.get(message.topic);
      if (others === undefined) byTopic.set(message.topic, [message]);
      else others.push(message);
    }
    try {
      const producer = await this.#producerClient();
      await producer.sendBatch({
        acks: ALL_REPLICAS,
        topicMessages: [...byTopic].map(([topic, some]) => ({
          topic,
          messages: some.map(({ key, value, headers }) => ({
            key: key ?? null,
            value: value ?? null,
            headers: toHeaders(headers),
          })),
        })),
      });
    } catch (error) {
      throw unavailable("publish", error);
    }
  }

  async close(): Promise<void> {
    await this.#sending;
    for (const opening of [this.#admin, this.#producer]) {
      const client = await opening?.catch(() => undefined);
      await client?.disconnect().catch(() => {});
    }
  }

  #adminClient(): Promise<Admin> {
    this.#admin ??= connected(this.#kafka.admin({ retry: RETRY })).catch((error: unknown) => {
      this.#admin = undefined;
      throw error;
    });
    return this.#admin;
  }

  #producerClient(): Promise<Producer> {
    const producer = { allowAutoTopicCreation: false, maxInFlightRequests: 1, retry: RETRY };
    this.#producer ??= connected(this.#kafka.producer(producer)).catch((error: unknown) => {
      this.#producer = undefined;
      throw error;
    });
    return this.#producer;
  }
}

async function connected<Client extends Admin | Producer>(client: Client): Promise<Client> {
  await client.connect();
  return client;
}

function toHeaders(headers: readonly KafkaHeader[]): IHeaders {
  const all: Record<string, Buffer[]> = {};
  for (const { name, value } of headers) (all[name] ??= []).push(value);
  return all;
}

function toSasl(sasl: KafkaSaslOptions): SASLOptions {
  const { mechanism, username = "", password = "", token } = sasl;
  if (mechanism === "OAUTHBEARER") {
    return {
      mechanism: "oauthbearer",
      oauthBearerProvider: async () => ({ value: (await token?.()) ?? "" }),
    };
  }
  if (mechanism === "PLAIN") return { mechanism: "plain", username, password };
  return mechanism === "SCRAM-SHA-256"
    ? { mechanism: "scram-sha-256", username, password }
    : { mechanism: "scram-sha-512", username, password };
}

const unavailable = (doing: string, error: unknown): UnavailableError =>
  error instanceof UnavailableError
    ? error
    : new UnavailableError(`Kafka: ${doing}: ${describeError(error)}`, { cause: error });
