import type { Admin, BaseOptions, Producer } from "@platformatic/kafka";
import { systemClock } from "../../base/clock.ts";
import { UnavailableError } from "../../base/errors.ts";
import { describeError, quietly } from "../client-errors.ts";
import type { ResolvedKafkaOptions } from "../connect-options.ts";
import type {
  KafkaClient,
  Membership,
  NewTopic,
  OffsetRange,
  OutgoingMessage,
  Subscription,
  TopicDescription,
} from "../source.ts";
import { PlatformaticMember } from "./member.ts";

type Package = typeof import("@platformatic/kafka");

const RETRIES = 3;
const RETRY_MS = 200;
const CONNECT_MS = 5_000;
const EARLIEST = -2n;
const LATEST = -1n;
const ALL_REPLICAS = -1;

/** Kafka through `@platformatic/kafka`, which must be installed. */
export class PlatformaticClient implements KafkaClient {
  readonly #package: Package;
  readonly #options: BaseOptions;
  #admin: Admin | undefined;
  #producer: Producer | undefined;
  #sending: Promise<unknown> = Promise.resolve();

  private constructor(library: Package, options: BaseOptions) {
    this.#package = library;
    this.#options = options;
  }

  static async open(given: ResolvedKafkaOptions): Promise<PlatformaticClient> {
    const library = await import("@platformatic/kafka");
    const { brokers, clientId, tls, sasl, requestMs } = given;
    return new PlatformaticClient(library, {
      bootstrapBrokers: [...brokers],
      clientId,
      timeout: requestMs,
      requestTimeout: requestMs,
      connectTimeout: Math.min(CONNECT_MS, requestMs),
      retries: RETRIES,
      retryDelay: RETRY_MS,
      ...(tls === undefined ? {} : { tls, tlsServerName: true }),
      ...(sasl === undefined ? {} : { sasl }),
    });
  }

  async describeTopics(topics: readonly string[]): Promise<ReadonlyMap<string, TopicDescription>> {
    const found = await Promise.all(topics.map((topic) => this.#describe(topic)));
    return new Map(found.flat());
  }

  async #describe(topic: string): Promise<[string, TopicDescription][]> {
    try {
      const { topics } = await this.#adminClient().metadata({ topics: [topic], forceUpdate: true });
      const known = topics.get(topic);
      return known === undefined
        ? []
        : [[topic, { topicId: known.id, partitions: known.partitionsCount }]];
    } catch (error) {
      if (describeError(error) === `Unknown topic ${topic}.`) return [];
      throw unavailable(`describe topic ${topic}`, error);
    }
  }

  async createTopics(topics: readonly NewTopic[]): Promise<void> {
    for (const { topic, partitions, replicas } of topics) {
      try {
        await this.#adminClient().createTopics({ topics: [topic], partitions, replicas });
      } catch (error) {
        if (hasApiId(error, "TOPIC_ALREADY_EXISTS")) continue;
        throw unavailable(`make topic ${topic}`, error);
      }
    }
  }

  async listOffsets(topic: string, partitions: number): Promise<readonly OffsetRange[]> {
    const all = { [topic]: Array.from({ length: partitions }, (_, partition) => partition) };
    const consumer = new this.#package.Consumer({ ...this.#options, groupId: "tidemill-offsets" });
    consumer.on("error", () => {});
    try {
      const [earliest, latest] = await Promise.all(
        [EARLIEST, LATEST].map((timestamp) =>
          consumer.listOffsets({ topics: [topic], partitions: all, timestamp }),
        ),
      );
      return Array.from({ length: partitions }, (_, partition) => ({
        earliest: offsetOf(earliest?.get(topic)?.[partition], topic, partition),
        latest: offsetOf(latest?.get(topic)?.[partition], topic, partition),
      }));
    } catch (error) {
      throw unavailable(`list offsets of ${topic}`, error);
    } finally {
      await quietly(() => consumer.close(true));
    }
  }

  async join(subscription: Subscription): Promise<Membership> {
    const member = new PlatformaticMember(this.#package, this.#options, subscription, systemClock);
    try {
      await member.join();
      return member;
    } catch (error) {
      await member.leave();
      throw unavailable(`join group ${subscription.groupId}`, error);
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
    this.#producer ??= this.#open(new this.#package.Producer({ ...this.#options }));
    try {
      await this.#producer.send({
        acks: ALL_REPLICAS,
        messages: messages.map(({ topic, key, value, headers }) => ({
          topic,
          ...(key === undefined ? {} : { key }),
          ...(value === undefined ? {} : { value }),
          headers: new Map(headers.map((one) => [Buffer.from(one.name), one.value])),
        })),
      });
    } catch (error) {
      throw unavailable("publish", error);
    }
  }

  async close(): Promise<void> {
    await this.#sending;
    for (const one of [this.#admin, this.#producer]) await quietly(() => one?.close());
  }

  #adminClient(): Admin {
    this.#admin ??= this.#open(new this.#package.Admin({ ...this.#options }));
    return this.#admin;
  }

  #open<Client extends Admin | Producer>(client: Client): Client {
    client.on("error", () => {}); // Whoever asked is told.
    return client;
  }
}

function offsetOf(offset: bigint | undefined, topic: string, partition: number): bigint {
  if (offset !== undefined && offset >= 0n) return offset;
  throw new UnavailableError(`partition ${partition} of ${topic} has no offsets now`);
}

/** Whether the brokers said this, in whatever the client made of it. */
export function hasApiId(error: unknown, apiId: string): boolean {
  const found = error as { findBy?: (name: string, value: unknown) => unknown } | null;
  return typeof found?.findBy === "function" && Boolean(found.findBy("apiId", apiId));
}

const unavailable = (doing: string, error: unknown): UnavailableError =>
  error instanceof UnavailableError
    ? error
    : new UnavailableError(`Kafka: ${doing}: ${describeError(error)}`, { cause: error });
