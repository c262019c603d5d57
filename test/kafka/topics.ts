import { Admin } from "@platformatic/kafka";
import { expect } from "vitest";
import type { KafkaMessage } from "../../src/kafka/index.ts";
import { eventually } from "../support/eventually.ts";
import type { Scene } from "./scene.ts";

/** Reads one partition of a topic from its beginning, until `isEnough`. */
export async function readTopic(
  here: Scene,
  topic: string,
  isEnough: (messages: readonly KafkaMessage[]) => boolean,
): Promise<KafkaMessage[]> {
  const { topicId = "" } = (await here.client.describeTopics([topic])).get(topic) ?? {};
  const messages: KafkaMessage[] = [];
  const member = await here.client.join({
    groupId: `test.${topic}`,
    topic,
    topicId,
    fetchBytes: 1_000_000,
    sessionTimeoutMs: 5_000,
    listener: {
      onAssigned: () => {},
      onBatch: (batch) => void messages.push(...batch.messages),
      onOutOfRange: () => {},
      onFailure: () => {},
    },
  });
  try {
    member.seek(0, 0n);
    await eventually(() => expect(isEnough(messages), `${messages.length} messages`).toBe(true));
  } finally {
    await member.leave();
  }
  return messages;
}

export const headersOf = (message: KafkaMessage): Record<string, string> =>
  Object.fromEntries(message.headers.map(({ name, value }) => [name, value.toString()]));

async function withAdmin<T>(here: Scene, work: (admin: Admin) => Promise<T>): Promise<T> {
  const admin = new Admin({ clientId: "test", bootstrapBrokers: [here.broker.address] });
  try {
    return await work(admin);
  } finally {
    await admin.close();
  }
}

/** Removes what is before an offset, as retention does. */
export async function removeBefore(here: Scene, topic: string, offset: bigint): Promise<void> {
  const topics = [{ name: topic, partitions: [{ partition: 0, offset }] }];
  await withAdmin(here, (admin) => admin.deleteRecords({ topics }));
}

/** What the group of an ingest was told, all partitions of the topic together. */
export async function committedOf(here: Scene, topic: string): Promise<number> {
  const groups = [`tidemill.${topic}`];
  const found = await withAdmin(here, (admin) => admin.listConsumerGroupOffsets({ groups }));
  const partitions = found.flatMap(({ topics }) => topics).flatMap((one) => one.partitions);
  return partitions.reduce((sum, { committedOffset }) => sum + Number(committedOffset), 0);
}

/** A topic of one partition that takes no larger batches of its log. */
export async function smallTopic(here: Scene, topic: string, bytes: number): Promise<void> {
  const configs = [{ name: "max.message.bytes", value: String(bytes) }];
  await withAdmin(here, (admin) =>
    admin.createTopics({ topics: [topic], partitions: 1, replicas: 1, configs }),
  );
}
