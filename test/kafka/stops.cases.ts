import { describe, expect, it } from "vitest";
import { type KafkaClient, KafkaIngest, KafkaTaskPublisher } from "../../src/kafka/index.ts";
import { gate } from "../integration/tasks/scene.ts";
import { onCleanup } from "../support/database.ts";
import { eventually } from "../support/eventually.ts";
import { endBySql } from "./ends.ts";
import { startProcess } from "./processes.ts";
import { type Scene, scene, used } from "./scene.ts";
import { headersOf, readTopic } from "./topics.ts";

/** Longer than this, and somebody waited for the broker: its client does so for ten. */
const PROMPT_MS = 5_000;

const isPublishing = async ({ database }: Scene): Promise<void> =>
  await eventually(async () => {
    const text = "SELECT FROM tidemill.task_publications WHERE intended IS NOT NULL";
    expect((await database.pool.query(text)).rowCount).toBe(1);
  });

function freezeBroker(): void {
  onCleanup(async () => used.broker.wake());
  used.broker.freeze();
}

/** The same client, and when a message is published that is for this topic. */
function watched(client: KafkaClient, topic: string): { client: KafkaClient; seen: Promise<void> } {
  const begun = gate();
  return {
    seen: begun.opened,
    client: {
      knowsTopicIds: client.knowsTopicIds,
      describeTopics: (topics) => client.describeTopics(topics),
      createTopics: (topics) => client.createTopics(topics),
      listOffsets: (name, partitions) => client.listOffsets(name, partitions),
      join: (subscription) => client.join(subscription),
      close: () => client.close(),
      publish: (messages) => {
        if (messages.some((one) => one.topic === topic)) begun.open();
        return client.publish(messages);
      },
    },
  };
}

describe("a stop while a broker hangs", () => {
  it("ends in its time, and what was under way is done again elsewhere", async () => {
    const here = await scene(used.broker, { partitions: 1 });
    const { mill, client, prefix, database } = here;
    const [topic, deadLetterTopic] = [`${prefix}.ended`, `${prefix}.dead`];
    const made = [topic, deadLetterTopic].map((name) => ({ topic: name, partitions: 1 }));
    await client.createTopics(made.map((one) => ({ ...one, replicas: 1 })));
    const tasks = { name: "ends", topic, drainSeconds: 0.5 };
    const messages = { ...here.options, batchMessages: 1, deadLetterTopic, drainSeconds: 0.5 };
    const dead = watched(client, deadLetterTopic);
    const publisher = new KafkaTaskPublisher(mill, client, tasks);
    const ingest = new KafkaIngest(mill, dead.client, messages);
    await Promise.all([publisher.start(), ingest.start()]);
    await eventually(() =>
      expect(ingest.status().flatMap(({ partitions }) => partitions)).toHaveLength(3),
    );
    // The second message is fetched, and is told to nobody before the first is stored.
    const blocker = await database.session();
    await blocker.query("BEGIN");
    await blocker.query("SELECT FROM tidemill.kafka_offsets FOR UPDATE");
    await here.produce("normal", 1);
    const garbage = { topic: `${prefix}.jobs.normal`, key: undefined, headers: [] };
    await client.publish([{ ...garbage, value: Buffer.from("no job") }]);
    await eventually(() => expect(ingest.status()[1]?.buffered).toBe(2));
    freezeBroker();
    await blocker.query("ROLLBACK");
    await dead.seen;
    await database.pool.query(endBySql(1));
    await isPublishing(here);
    const begunMs = performance.now();
    const stopped = await Promise.all([ingest.stop(), publisher.stop()]);
    expect(stopped).toEqual([{ givenBack: 1 }, { givenBack: 1 }]);
    await client.close();
    expect(performance.now() - begunMs).toBeLessThan(PROMPT_MS);
    await Promise.all([ingest.finished, publisher.finished]);
    expect((await here.stored()).tasks).toBe(1);

    used.broker.wake();
    const other = await scene(used.broker, { partitions: 0 });
    const heirs = [
      new KafkaTaskPublisher(mill, other.client, tasks),
      new KafkaIngest(mill, other.client, messages),
    ] as const;
    for (const heir of heirs) await eventually(() => heir.start());
    await readTopic(other, deadLetterTopic, (some) => some.length > 0);
    const [end] = await readTopic(other, topic, (some) => some.length > 0);
    expect(end === undefined ? {} : headersOf(end)).toMatchObject({ "tidemill-task-id": "1" });
    for (const heir of heirs) expect(await heir.stop()).toEqual({ givenBack: 0 });
    expect((await here.stored()).tasks).toBe(1);
  });

  it("is told by the exit code of its program, and a second signal waits for nothing", async () => {
    const here = await scene(used.broker, { partitions: 1 });
    const topic = `${here.prefix}.ended`;
    await here.client.createTopics([{ topic, partitions: 1, replicas: 1 }]);
    const drainSeconds = 0.5;
    const publishing = { name: "ends", topic };
    const [ingest, publish, patient] = await Promise.all([
      startProcess(here, "ingest", { ...here.options, drainSeconds }),
      startProcess(here, "publish", { ...publishing, drainSeconds }),
      startProcess(here, "ingest", { ...here.options, group: "other", drainSeconds: 600 }),
    ]);
    freezeBroker();
    await here.database.pool.query(endBySql(1));
    await isPublishing(here);
    const begunMs = performance.now();
    const codes = [ingest, publish].map((one) => one.kill("SIGTERM"));
    expect(await Promise.all(codes), ingest.log() + publish.log()).toEqual([0, 75]);
    expect(performance.now() - begunMs).toBeLessThan(PROMPT_MS);
    const ended = patient.kill("SIGTERM");
    await eventually(() => expect(patient.log()).toContain('"draining"'));
    // One that comes right after the first is the first again.
    await eventually(() => {
      void patient.kill("SIGTERM");
      expect(patient.exitCode()).toBe(143);
    });
    expect(await ended).toBe(143);
  });

  it("is told by the exit code of an ingest whose messages were being stored", async () => {
    const here = await scene(used.broker, { partitions: 1 });
    const ingesting = await startProcess(here, "ingest", { ...here.options, drainSeconds: 0.5 });
    const blocker = await here.database.session();
    await eventually(async () => {
      expect((await blocker.query("SELECT FROM tidemill.kafka_offsets")).rowCount).toBe(3);
    });
    await blocker.query("BEGIN");
    await blocker.query("SELECT FROM tidemill.kafka_offsets FOR UPDATE");
    await here.produce("normal", 1);
    const waiting = `SELECT FROM pg_stat_activity
                      WHERE datname = current_database() AND wait_event_type = 'Lock'`;
    await eventually(
      async () => expect((await here.database.pool.query(waiting)).rowCount).toBe(1),
      { everyMs: 5 },
    );
    expect(await ingesting.kill("SIGTERM"), ingesting.log()).toBe(75);
    await blocker.query("ROLLBACK");
    const heir = await here.ingest();
    await here.expectExactly(1);
    expect(await heir.stop()).toEqual({ givenBack: 0 });
  });
});
