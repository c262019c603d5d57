import type { Admin, BaseOptions } from "@platformatic/kafka";
import { systemClock, withinMs } from "../../base/clock.ts";
import { UnavailableError } from "../../base/errors.ts";
import { describeError, GOODBYE_MS, quietly, unavailable } from "../client-errors.ts";
import type { ResolvedKafkaOptions } from "../connect-options.ts";
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
import { PlatformaticMember } from "./member.ts";
import { PlatformaticTransport } from "./producer.ts";

type Package = typeof import("@platformatic/kafka");

const RETRIES = 3;
const RETRY_MS = 200;
const CONNECT_MS = 5_000;
const EARLIEST = -2n;
const LATEST = -1n;

/** Kafka through `@platformatic/kafka`, which must be installed. */
export class PlatformaticClient implements KafkaClient {
  readonly knowsTopicIds = true;
  readonly #package: Package;
  readonly #options: BaseOptions;
  readonly #transport: PlatformaticTransport;
  readonly #publishing: Publishing;
  #admin: Admin | undefined;

  private constructor(library: Package, options: BaseOptions, given: ResolvedKafkaOptions) {
    this.#package = library;
    this.#options = options;
    const { idempotent, messageBytesMax } = given;
    this.#transport = new PlatformaticTransport(library, { ...options, idempotent });
    this.#publishing = new Publishing(this.#transport, messageBytesMax);
  }

  static async open(given: ResolvedKafkaOptions): Promise<PlatformaticClient> {
    const library = await import("@platformatic/kafka");
    const { brokers, clientId, tls, sasl, requestMs } = given;
    const options: BaseOptions = {
      bootstrapBrokers: [...brokers],
      clientId,
      timeout: requestMs,
      requestTimeout: requestMs,
      connectTimeout: Math.min(CONNECT_MS, requestMs),
      retries: RETRIES,
      retryDelay: RETRY_MS,
      ...(tls === undefined ? {} : { tls, tlsServerName: true }),
      ...(sasl === undefined ? {} : { sasl }),
    };
    return new PlatformaticClient(library, options, given);
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

  async publish(messages: readonly OutgoingMessage[]): Promise<readonly RefusedMessage[]> {
    return await this.#publishing.publish(messages);
  }

  async close(): Promise<void> {
    await withinMs(this.#publishing.idle, GOODBYE_MS, systemClock);
    const goodbyes = [this.#transport.close(), quietly(() => this.#admin?.close())];
    await withinMs(Promise.all(goodbyes), GOODBYE_MS, systemClock);
  }

  #adminClient(): Admin {
    if (this.#admin === undefined) {
      this.#admin = new this.#package.Admin({ ...this.#options });
      this.#admin.on("error", () => {}); // Whoever asked is told.
    }
    return this.#admin;
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
