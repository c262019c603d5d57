import type { Admin, Kafka, SASLOptions } from "kafkajs";
import { systemClock, withinMs } from "../../base/clock.ts";
import { UnavailableError } from "../../base/errors.ts";
import { uuidOf } from "../../base/uuid.ts";
import { GOODBYE_MS, quietly, unavailable } from "../client-errors.ts";
import type { KafkaSaslOptions, ResolvedKafkaOptions } from "../connect-options.ts";
import { Publishing } from "../publishing.ts";
import type {
  KafkaClient,
  Membership,
  NewTopic,
  OffsetRange,
  OutgoingMessage,
  RefusedMessage,
  Subscription,
  TopicDescription,
} from "../source.ts";
import { KafkaJsMember } from "./member.ts";
import { KafkaJsTransport } from "./producer.ts";

const RETRY = { retries: 3, initialRetryTime: 200, maxRetryTime: 2_000 };
const CONNECT_MS = 5_000;

/**
 * Kafka through `kafkajs`, which must be installed. It knows no ids of topics and fetches by name,
 * so offsets are stored under an id made of the name: a topic that was made again is not noticed.
 * To ask for ids beside it would not help: between question and fetch the topic may be another one.
 */
export class KafkaJsClient implements KafkaClient {
  readonly knowsTopicIds = false;
  readonly #kafka: Kafka;
  readonly #transport: KafkaJsTransport;
  readonly #publishing: Publishing;
  #admin: Promise<Admin> | undefined;

  private constructor(kafka: Kafka, { idempotent, messageBytesMax }: ResolvedKafkaOptions) {
    this.#kafka = kafka;
    this.#transport = new KafkaJsTransport(kafka, {
      idempotent,
      retry: RETRY,
      countPartitions: async (topic) => {
        const found = await this.#describe(topic);
        return found[0]?.[1].partitions ?? 0;
      },
    });
    this.#publishing = new Publishing(this.#transport, messageBytesMax);
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
      given,
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

  async publish(messages: readonly OutgoingMessage[]): Promise<readonly RefusedMessage[]> {
    return await this.#publishing.publish(messages);
  }

  async close(): Promise<void> {
    await withinMs(this.#publishing.idle, GOODBYE_MS, systemClock);
    const leaving = quietly(async () => await (await this.#admin)?.disconnect());
    await withinMs(Promise.all([this.#transport.close(), leaving]), GOODBYE_MS, systemClock);
  }

  #adminClient(): Promise<Admin> {
    this.#admin ??= connected(this.#kafka.admin({ retry: RETRY })).catch((error: unknown) => {
      this.#admin = undefined;
      throw error;
    });
    return this.#admin;
  }
}

async function connected(admin: Admin): Promise<Admin> {
  await admin.connect();
  return admin;
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
