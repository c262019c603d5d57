import { Admin } from "@platformatic/kafka";
import { describe, expect, it } from "vitest";
import { onCleanup, type TestDatabase } from "../support/database.ts";
import { eventually } from "../support/eventually.ts";
import { type Scene, scene, used } from "./scene.ts";
import { readTopic } from "./topics.ts";

const JOB = JSON.stringify({ payload: { n: 1 } });

/** A message of partition 0 that was buried so many days ago. */
async function bury({ pool }: TestDatabase, source: string, days: number): Promise<string> {
  const { rows } = await pool.query<{ id: string }>(
    `INSERT INTO tidemill.kafka_dead_messages
            (source, topic_id, "partition", message_offset, topic, reason, value, headers,
             created_at)
     VALUES ($1, gen_random_uuid(), 0, 0, 'jobs', 'a test', convert_to($3, 'UTF8'), '[]',
             NOW() - make_interval(days => $2))
     RETURNING id::text`,
    [source, days, JOB],
  );
  return rows[0]?.id ?? "";
}

/** Somebody removes a topic while an ingest publishes to it. */
async function removeTopic({ broker, client }: Scene, topic: string): Promise<void> {
  const admin = new Admin({ clientId: "test", bootstrapBrokers: [broker.address] });
  onCleanup(() => admin.close());
  await admin.deleteTopics({ topics: [topic] });
  await eventually(async () => expect(await admin.listTopics()).not.toContain(topic));
  // The broker hears of it a moment later, and takes messages for it until then.
  const message = { topic, key: undefined, value: Buffer.from("late"), headers: [] };
  await eventually(() => expect(client.publish([message])).rejects.toThrow("Kafka"));
}

describe("dead messages", () => {
  it("are forgotten by the ingest of their source only, and become one task each", async () => {
    const here = await scene(used.broker, { partitions: 1 });
    await bury(here.database, "ours", 31);
    await bury(here.database, "theirs", 31);
    const kept = await bury(here.database, "ours", 29);
    const ours = await here.ingest({ source: "ours" });
    await eventually(async () => {
      expect((await ours.deadMessages.list()).map(({ id }) => id)).toEqual([kept]);
    });
    const { rows } = await here.database.pool.query(
      "SELECT FROM tidemill.kafka_dead_messages WHERE source = 'theirs'",
    );
    expect(rows).toHaveLength(1);
    // However often they are named.
    await here.mill.queues.ensure("jobs");
    const other = await bury(here.database, "ours", 0);
    const made = await ours.deadMessages.redrive([kept, other, kept, `0${other}`]);
    expect(made).toHaveLength(2);
    expect((await here.stored()).tasks).toBe(2);
  });

  it("may have a position that was buried before, which stops nothing", async () => {
    const here = await scene(used.broker, { partitions: 1 });
    const topic = `${here.prefix}.jobs.normal`;
    const garbage = { topic, key: undefined, value: Buffer.from("no job"), headers: [] };
    await here.client.publish([garbage]);
    const first = await here.ingest();
    await eventually(async () => expect(await first.deadMessages.list()).toHaveLength(1));
    await first.stop();
    await here.database.pool.query("UPDATE tidemill.kafka_offsets SET next_offset = 0");
    await here.produce("normal", 1);
    const again = await here.ingest();
    await here.expectExactly(1);
    expect(await again.deadMessages.list()).toHaveLength(2);
  });

  it.each([
    ["makes again", true],
    ["does without", false],
  ])("hold up no jobs behind a topic that was removed, which an ingest %s", async (_, mayMake) => {
    const here = await scene(used.broker, { partitions: 1 });
    const [topic, deadLetterTopic] = [`${here.prefix}.jobs.normal`, `${here.prefix}.dead`];
    const made = [{ topic: deadLetterTopic, partitions: 1, replicas: 1 }];
    await here.client.createTopics(made);
    const ingest = await here.ingest({
      deadLetterTopic,
      createTopics: mayMake,
      topicPartitions: 1,
    });
    const sendGarbage = async (text: string): Promise<void> => {
      const garbage = { topic, key: undefined, value: Buffer.from(text), headers: [] };
      await here.client.publish([garbage]);
    };
    await sendGarbage("first");
    await readTopic(here, deadLetterTopic, (some) => some.length > 0);
    await removeTopic(here, deadLetterTopic);
    await sendGarbage("second");
    await here.produce("normal", 10);
    await here.expectExactly(10);
    const buried = await ingest.deadMessages.list();
    if (mayMake) {
      const [second] = await readTopic(here, deadLetterTopic, (some) => some.length > 0);
      expect([String(second?.value), buried.length]).toEqual(["second", 0]);
    } else {
      expect(buried).toHaveLength(1);
      expect(buried[0]?.reason).toContain(`; topic ${deadLetterTopic} does not exist`);
    }
  });
});
