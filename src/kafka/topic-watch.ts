import type { Clock } from "../base/clock.ts";
import { ConfigError, UnavailableError } from "../base/errors.ts";
import type { Logger } from "../base/log.ts";
import type { ResolvedIngestOptions } from "./ingest-options.ts";
import type { KafkaSource, TopicDescription } from "./source.ts";

/** What topics there are: found once in a while, and made if somebody asked for that. */
export class TopicWatch {
  readonly #source: KafkaSource;
  readonly #options: ResolvedIngestOptions;
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #lookedMs = new Map<string, number>();

  constructor(
    source: KafkaSource,
    options: ResolvedIngestOptions,
    { clock, logger }: { readonly clock: Clock; readonly logger: Logger },
  ) {
    this.#source = source;
    this.#options = options;
    this.#clock = clock;
    this.#logger = logger;
  }

  /** Makes those that are missing, or refuses to begin without them and names all of them. */
  async ensureAll(): Promise<void> {
    const { topics, deadLetterTopic } = this.#options;
    const names = topics.map(({ topic }) => topic);
    if (deadLetterTopic !== undefined) names.push(deadLetterTopic);
    const found = await this.#source.describeTopics(names);
    const missing = names.filter((topic) => !found.has(topic));
    if (missing.length === 0) return;
    if (!this.#options.createTopics) {
      throw new ConfigError(
        `these topics do not exist: ${missing.join(", ")}; make them, or set createTopics`,
      );
    }
    await this.#create(missing);
  }

  async #create(missing: readonly string[]): Promise<void> {
    const { topicPartitions: partitions, topicReplicas: replicas } = this.#options;
    await this.#source.createTopics(missing.map((topic) => ({ topic, partitions, replicas })));
    this.#logger.info({ topics: missing, partitions }, "topics made");
  }

  /** The topic as it is now. */
  async require(topic: string): Promise<TopicDescription> {
    this.#lookedMs.set(topic, this.#clock.now());
    const found = (await this.#source.describeTopics([topic])).get(topic);
    if (found !== undefined) return found;
    if (this.#options.createTopics) await this.#create([topic]);
    throw new UnavailableError(
      `topic ${topic} does not exist; ${this.#options.createTopics ? "it was made" : "make it"}`,
    );
  }

  /** Whether it is gone for now: one that may be made is, and is there for the next who asks. */
  async isGone(topic: string): Promise<boolean> {
    if ((await this.#source.describeTopics([topic])).has(topic)) return false;
    if (!this.#options.createTopics) return true;
    await this.#create([topic]);
    return false;
  }

  /** Whether it is what it was; looked at every now and then. */
  async isStill(topic: string, { topicId, partitions }: TopicDescription): Promise<boolean> {
    const nowMs = this.#clock.now();
    const sinceMs = nowMs - (this.#lookedMs.get(topic) ?? 0);
    if (sinceMs < this.#options.topicCheckSeconds * 1000) return true;
    this.#lookedMs.set(topic, nowMs);
    const found = (await this.#source.describeTopics([topic])).get(topic);
    return found?.topicId === topicId && found.partitions === partitions;
  }
}
