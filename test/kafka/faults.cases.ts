import { Kafka, logLevel } from "kafkajs";
import { describe, expect, it } from "vitest";
import { onCleanup } from "../support/database.ts";
import { eventually } from "../support/eventually.ts";
import { startProcess } from "./processes.ts";
import { type Scene, scene, used } from "./scene.ts";
import { removeBefore } from "./topics.ts";

/** Nothing of one topic can be stored, until what it gives is called. */
async function refuseTopic({ database }: Scene, topic: string): Promise<() => Promise<void>> {
  await database.pool.query(`
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
      $$ BEGIN RAISE 'full' USING ERRCODE = 'disk_full'; END $$;
    CREATE TRIGGER refuse BEFORE UPDATE ON tidemill.kafka_offsets
      FOR EACH ROW WHEN (NEW.topic = '${topic}') EXECUTE FUNCTION refuse()`);
  return async () =>
    void (await database.pool.query("DROP TRIGGER refuse ON tidemill.kafka_offsets"));
}

describe("an ingest", () => {
  it("loses and doubles nothing when its process is killed", async () => {
    const here = await scene(used.broker);
    // However late it is killed, it was in the middle: a third of all is still to come.
    const release = await refuseTopic(here, `${here.prefix}.jobs.low`);
    for (const [at, priority] of (["high", "normal", "low"] as const).entries()) {
      await here.produce(priority, 4_000, at * 4_000);
    }
    for (const atLeast of [500, 4_000]) {
      const ingesting = await startProcess(here, "ingest", { ...here.options, batchMessages: 200 });
      await eventually(
        async () => expect((await here.stored()).tasks).toBeGreaterThanOrEqual(atLeast),
        { everyMs: 5 },
      );
      await ingesting.kill("SIGKILL");
    }
    expect((await here.stored()).tasks).toBeLessThanOrEqual(8_000);
    await release();
    await here.ingest();
    await here.expectExactly(12_000);
  });

  it("finishes its transaction when it is told to stop, and leaves the rest", async () => {
    const here = await scene(used.broker);
    await here.produce("normal", 6_000);
    const options = { ...here.options, batchMessages: 200 };
    const ingesting = await startProcess(here, "ingest", options, ["--metrics", "0"]);
    await eventually(async () => expect((await here.stored()).tasks).toBeGreaterThan(0), {
      everyMs: 5,
    });
    expect(await ingesting.kill("SIGTERM"), ingesting.log()).toBe(0);
    expect(ingesting.log()).toContain('"stopped"');
    const { tasks, numbers } = await here.stored();
    expect(tasks).toBe(numbers);
    await here.ingest();
    await here.expectExactly(6_000);
  });

  it("stores each message once when two members believe to have its partition", async () => {
    const here = await scene(used.broker);
    // Two groups divide nothing between them: both read everything, at the same time.
    const both = await Promise.all(
      ["one", "other"].map((group) => here.ingest({ group, batchMessages: 100 })),
    );
    for (const ingest of both) {
      await eventually(() =>
        expect(ingest.status().flatMap(({ partitions }) => partitions)).toHaveLength(9),
      );
    }
    // Nobody stores before both have the same messages in their hands.
    const blocker = await here.database.session();
    await blocker.query("BEGIN");
    await blocker.query("SELECT FROM tidemill.kafka_offsets FOR UPDATE");
    await here.produce("normal", 6_000);
    for (const ingest of both) {
      await eventually(() => {
        const buffered = ingest.status().reduce((sum, one) => sum + one.buffered, 0);
        expect(buffered).toBeGreaterThan(0);
      });
    }
    await blocker.query("ROLLBACK");
    await here.expectExactly(6_000);
    const topic = `${here.prefix}.jobs.normal`;
    // Who came second may still have to hear that it did.
    await eventually(() => {
      const moved = both.map((ingest) => ingest.metrics.moved.value({ topic }) ?? 0);
      expect(Math.max(...moved)).toBeGreaterThan(0);
    });
  });

  it("stores each message once while its connections to the database are cut", async () => {
    const here = await scene(used.broker);
    await here.produce("high", 6_000);
    const killer = await here.database.session();
    const ingest = await here.ingest({ batchMessages: 100 });
    for (let cuts = 1; cuts <= 8; cuts += 1) {
      await eventually(
        async () => {
          const { rows } = await killer.query<{ count: number }>(
            "SELECT count(*)::int FROM tidemill.live_tasks",
          );
          expect(rows[0]?.count).toBeGreaterThanOrEqual(cuts * 300);
        },
        { everyMs: 2 },
      );
      await killer.query(
        `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
          WHERE datname = current_database() AND pid <> pg_backend_pid()`,
      );
    }
    await eventually(() => here.stored());
    await here.expectExactly(6_000);
    const topic = `${here.prefix}.jobs.high`;
    const failures = ingest.metrics.failures.value({ topic, doing: "store" });
    expect(failures + ingest.metrics.moved.value({ topic })).toBeGreaterThan(0);
  });

  it("reads a topic anew that was deleted and made again under its name", async () => {
    const here = await scene(used.broker, { partitions: 1 });
    const { Admin } = await import("@platformatic/kafka");
    const admin = new Admin({ clientId: "test", bootstrapBrokers: [here.broker.address] });
    onCleanup(() => admin.close());
    const topic = `${here.prefix}.jobs.normal`;
    await here.ingest({ startFrom: "latest" });
    await eventually(async () => {
      const { rows } = await here.database.pool.query("SELECT FROM tidemill.kafka_offsets");
      expect(rows).toHaveLength(3);
    });
    await here.produce("normal", 100);
    await here.expectExactly(100);
    await admin.deleteTopics({ topics: [topic] });
    // The broker hears of it a moment later, and takes messages for the old one until then.
    await eventually(async () => expect(await admin.listTopics()).not.toContain(topic));
    await eventually(() => here.client.createTopics([{ topic, partitions: 1, replicas: 1 }]));
    await eventually(() => here.produce("normal", 150, 100));
    await here.expectExactly(250);
    const { rows } = await here.database.pool.query(
      "SELECT next_offset FROM tidemill.kafka_offsets WHERE topic = $1 ORDER BY created_at",
      [topic],
    );
    expect(rows).toEqual([{ next_offset: "100" }, { next_offset: "150" }]);
  });

  it("is refused through a client that would not notice that, unless allowed to", async () => {
    const here = await scene(used.broker, { client: "kafkajs", partitions: 1 });
    await expect(here.ingest({ allowUnnoticedRecreation: false })).rejects.toMatchObject({
      code: "TM_CONFIG",
      message: expect.stringContaining("set allowUnnoticedRecreation") as string,
    });
    await (await here.ingest()).stop();
  });

  it("reads partitions that were added, from their beginning", async () => {
    const here = await scene(used.broker, { partitions: 1 });
    const admin = new Kafka({ brokers: [here.broker.address], logLevel: logLevel.NOTHING }).admin();
    await admin.connect();
    onCleanup(() => admin.disconnect());
    const ingest = await here.ingest({ startFrom: "latest" });
    await eventually(() =>
      expect(ingest.status().flatMap(({ partitions }) => partitions)).toHaveLength(3),
    );
    await here.produce("low", 10);
    await here.expectExactly(10);
    const topicPartitions = [{ topic: `${here.prefix}.jobs.low`, count: 4 }];
    await admin.createPartitions({ topicPartitions });
    await eventually(() => here.produce("low", 500, 10));
    await here.expectExactly(510);
    await eventually(() =>
      expect(ingest.status().flatMap(({ partitions }) => partitions)).toHaveLength(6),
    );
  });

  it("does not go on by itself when Kafka has removed what was not read", async () => {
    const here = await scene(used.broker, { partitions: 1 });
    const topic = `${here.prefix}.jobs.high`;
    await here.produce("high", 50);
    const first = await here.ingest();
    await here.expectExactly(50);
    await first.stop();
    await here.produce("high", 50, 50);
    await removeBefore(here, topic, 80n);
    const stopped = await here.ingest();
    await eventually(() => {
      const [status] = stopped.status().filter((one) => one.topic === topic);
      expect(status?.partitions[0]?.problem).toBe(
        "Kafka has removed offsets 50 to 79, which were not read",
      );
    });
    expect(await here.stored()).toEqual({ tasks: 50, numbers: 50 });
    await stopped.stop();
    await here.ingest({ onDataLoss: "continue" });
    await here.expectExactly(70);
  });

  it("leaves out what transactions wrote and aborted", async () => {
    const here = await scene(used.broker, { partitions: 1 });
    const { Producer } = await import("@platformatic/kafka");
    const producer = new Producer({
      clientId: "test",
      bootstrapBrokers: [here.broker.address],
      transactionalId: here.prefix,
      idempotent: true,
      retries: 30,
      retryDelay: 100,
    });
    onCleanup(() => producer.close());
    const send = async (n: number, isCommitted: boolean): Promise<void> => {
      const transaction = await producer.beginTransaction();
      const value = Buffer.from(JSON.stringify({ payload: { n } }));
      await transaction.send({ messages: [{ topic: `${here.prefix}.jobs.high`, value }] });
      await (isCommitted ? transaction.commit() : transaction.abort());
    };
    for (let n = 0; n < 6; n += 1) await send(n, n % 2 === 0);
    const ingest = await here.ingest();
    await here.expectExactly(3);
    await send(6, true);
    await here.expectExactly(4);
    const { rows } = await here.database.pool.query<{ n: number }>(
      "SELECT (payload::jsonb->>'n')::int AS n FROM tidemill.live_tasks ORDER BY 1",
    );
    expect(rows.map(({ n }) => n)).toEqual([0, 2, 4, 6]);
    await ingest.stop();
  });
});
