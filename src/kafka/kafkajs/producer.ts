import type { IHeaders, Kafka, Producer } from "kafkajs";
import { systemClock } from "../../base/clock.ts";
import { isRefusalCode, quietly, refusalOf, unavailable } from "../client-errors.ts";
import type { Slice, Transport } from "../publishing.ts";
import type { KafkaHeader } from "../source.ts";

const ALL_REPLICAS = -1;
const COUNTS_MS = 60_000;

export interface KafkaJsTransportOptions {
  readonly idempotent: boolean;
  readonly retry: { readonly retries: number };
  /** How many partitions a topic has; 0 when there is none. */
  readonly countPartitions: (topic: string) => Promise<number>;
}

/**
 * Sends with one producer of `kafkajs` at a time. What it sends again by itself brokers recognise
 * by its numbers. It is given up after any failure: it takes back the numbers of everything that it
 * had sent to the broker, stored or not, and other messages with those would be dropped.
 */
export class KafkaJsTransport implements Transport {
  readonly #kafka: Kafka;
  readonly #options: KafkaJsTransportOptions;
  readonly #goodbyes = new Set<Promise<unknown>>();
  readonly #counts = new Map<string, { readonly count: number; readonly atMs: number }>();
  #producer: Promise<Producer> | undefined;

  constructor(kafka: Kafka, options: KafkaJsTransportOptions) {
    this.#kafka = kafka;
    this.#options = options;
  }

  async countPartitions(topics: readonly string[]): Promise<ReadonlyMap<string, number>> {
    const nowMs = systemClock.now();
    for (const topic of topics) {
      const known = this.#counts.get(topic);
      if (known !== undefined && nowMs - known.atMs < COUNTS_MS) continue;
      const count = await this.#options.countPartitions(topic);
      this.#counts.set(topic, { count, atMs: count > 0 ? nowMs : -Infinity });
    }
    return new Map(topics.map((topic) => [topic, this.#counts.get(topic)?.count ?? 0]));
  }

  /**
   * Of a request that failed it does not tell which partitions are stored: then each is sent alone,
   * and what was stored is stored again.
   */
  async send(slices: readonly Slice[]): Promise<ReadonlyMap<Slice, string>> {
    try {
      const producer = await this.#open();
      await producer.sendBatch({ acks: ALL_REPLICAS, topicMessages: slices.map(toMessages) });
      return new Map();
    } catch (error) {
      this.#giveUp();
      const refusal = readRefusal(error);
      const [first, ...others] = slices;
      if (refusal === undefined || first === undefined) throw unavailable("publish", error);
      if (others.length === 0) return new Map([[first, refusal]]);
      const refused = new Map<Slice, string>();
      for (const slice of slices) {
        for (const [one, reason] of await this.send([slice])) refused.set(one, reason);
      }
      return refused;
    }
  }

  async close(): Promise<void> {
    this.#giveUp();
    await Promise.all(this.#goodbyes);
  }

  #open(): Promise<Producer> {
    const { idempotent, retry } = this.#options;
    const made = { idempotent, allowAutoTopicCreation: false, maxInFlightRequests: 1, retry };
    this.#producer ??= connected(this.#kafka.producer(made));
    return this.#producer;
  }

  #giveUp(): void {
    const opening = this.#producer;
    if (opening === undefined) return;
    this.#producer = undefined;
    this.#counts.clear();
    const goodbye = quietly(async () => await (await opening).disconnect()).finally(() =>
      this.#goodbyes.delete(goodbye),
    );
    this.#goodbyes.add(goodbye);
  }
}

async function connected(producer: Producer): Promise<Producer> {
  await producer.connect();
  return producer;
}

function toMessages({ topic, partition, messages }: Slice): {
  topic: string;
  messages: { partition: number; key: Buffer | null; value: Buffer | null; headers: IHeaders }[];
} {
  return {
    topic,
    messages: messages.map(({ key, value, headers }) => ({
      partition,
      key: key ?? null,
      value: value ?? null,
      headers: toHeaders(headers),
    })),
  };
}

function toHeaders(headers: readonly KafkaHeader[]): IHeaders {
  const all: Record<string, Buffer[]> = {};
  for (const { name, value } of headers) (all[name] ??= []).push(value);
  return all;
}

function readRefusal(error: unknown): string | undefined {
  for (let one = error; one instanceof Error; one = one.cause) {
    const { code } = one as Error & { code?: unknown };
    if (typeof code === "number" && isRefusalCode(code)) return refusalOf(code, one.message);
  }
  return undefined;
}
