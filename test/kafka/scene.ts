import { randomBytes } from "node:crypto";
import { afterAll, beforeAll, beforeEach, expect } from "vitest";
import type { Tidemill } from "../../src/index.ts";
import {
  connectKafka,
  type KafkaClient,
  KafkaIngest,
  type KafkaIngestOptions,
} from "../../src/kafka/index.ts";
import { onCleanup, type TestDatabase, testDatabase } from "../support/database.ts";
import { eventually } from "../support/eventually.ts";
import { Broker } from "./broker.ts";
import { missingJava, RESOLVE_MS_MAX } from "./classpath.ts";

export type ClientName = "platformatic" | "kafkajs";

const begun: { broker?: Broker } = {};

/** The broker of the tests that run now. */
export const used = {
  get broker(): Broker {
    if (begun.broker === undefined) throw new Error("there is no broker");
    return begun.broker;
  },
};

/** One broker for all tests of a file, which are skipped by name where there can be none. */
export function useBroker(): void {
  let missing: string | undefined;
  beforeAll(async () => {
    missing = await missingJava();
    if (missing === undefined) begun.broker = await Broker.start();
  }, RESOLVE_MS_MAX);
  beforeEach((context) => {
    if (missing !== undefined) context.skip(missing);
  });
  afterAll(async () => await begun.broker?.close());
}

/** Everything happens within a second or two. */
export const QUICK = { sessionSeconds: 2, topicCheckSeconds: 0.2 } as const;

export interface Scene {
  readonly broker: Broker;
  readonly database: TestDatabase;
  readonly mill: Tidemill;
  readonly client: KafkaClient;
  readonly prefix: string;
  /** Options that read the topics of the scene. */
  readonly options: KafkaIngestOptions;
  ingest(options?: Partial<KafkaIngestOptions>): Promise<KafkaIngest>;
  /** Publishes jobs with a number each, from `from` on, to one of the topics of the scene. */
  produce(
    priority: "high" | "normal" | "low",
    count: number,
    from?: number,
    producer?: KafkaClient,
  ): Promise<void>;
  /** How many tasks there are, and how many numbers among them. */
  stored(): Promise<{ readonly tasks: number; readonly numbers: number }>;
  /** Waits until so many tasks are there, and looks that none is there twice. */
  expectExactly(count: number, timeoutMs?: number): Promise<void>;
}

const BATCH = 2_000;

export async function scene(
  broker: Broker,
  {
    client: name = "platformatic",
    partitions = 3,
  }: { client?: ClientName; partitions?: number } = {},
): Promise<Scene> {
  const database = await testDatabase();
  const mill = await database.connect();
  const client = await connectKafka({ brokers: [broker.address], client: name });
  onCleanup(() => client.close());
  const prefix = `t${randomBytes(4).toString("hex")}`;
  const allowUnnoticedRecreation = name === "kafkajs";
  const options = { prefix, queue: "jobs", allowUnnoticedRecreation, ...QUICK };
  if (partitions > 0) {
    const topics = ["high", "normal", "low"].map((priority) => `${prefix}.jobs.${priority}`);
    await eventually(() =>
      client.createTopics(topics.map((topic) => ({ topic, partitions, replicas: 1 }))),
    );
  }
  const stored: Scene["stored"] = async () => {
    const { rows } = await database.pool.query<{ tasks: number; numbers: number }>(
      `SELECT count(*)::int AS tasks, count(DISTINCT payload::jsonb->>'n')::int AS numbers
         FROM tidemill.live_tasks`,
    );
    return rows[0] ?? { tasks: 0, numbers: 0 };
  };
  return {
    broker,
    database,
    mill,
    client,
    prefix,
    options,
    stored,
    async ingest(more = {}) {
      const ingest = new KafkaIngest(mill, client, { ...options, ...more });
      onCleanup(() => ingest.stop());
      await ingest.start();
      return ingest;
    },
    async produce(priority, count, from = 0, producer = client) {
      for (let at = 0; at < count; at += BATCH) {
        const length = Math.min(BATCH, count - at);
        await producer.publish(
          Array.from({ length }, (_, place) => {
            const n = from + at + place;
            return {
              topic: `${prefix}.jobs.${priority}`,
              key: Buffer.from(`key ${n}`),
              value: Buffer.from(JSON.stringify({ payload: { n, text: "some words of payload" } })),
              headers: [],
            };
          }),
        );
      }
    },
    async expectExactly(count, timeoutMs = 30_000) {
      await eventually(async () => expect((await stored()).numbers).toBe(count), {
        timeoutMs,
        everyMs: 100,
      });
      expect(await stored()).toEqual({ tasks: count, numbers: count });
    },
  };
}
