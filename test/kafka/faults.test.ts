import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Kafka, logLevel } from "kafkajs";
import { describe, expect, it } from "vitest";
import { onCleanup } from "../support/database.ts";
import { eventually } from "../support/eventually.ts";
import { program } from "../support/programs.ts";
import { type Scene, scene, useBroker } from "./scene.ts";

const used = useBroker();

interface IngestProcess {
  kill(signal: "SIGKILL" | "SIGTERM"): Promise<number | null>;
  readonly log: () => string;
}

/** `tidemill ingest kafka`, as an operator runs it. */
async function startProcess(here: Scene, flags: readonly string[] = []): Promise<IngestProcess> {
  const folder = mkdtempSync(join(tmpdir(), "tidemill-ingest-"));
  onCleanup(async () => rmSync(folder, { recursive: true }));
  const config = join(folder, "config.json");
  const ingest = { ...here.options, batchMessages: 200 };
  writeFileSync(config, JSON.stringify({ kafka: { brokers: [here.broker.address] }, ingest }));
  const child = spawn(process.execPath, [
    program("src/cli/main.ts"),
    "ingest",
    "kafka",
    "--config",
    config,
    "--database-url",
    here.database.url,
    ...flags,
  ]);
  let log = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8").on("data", (text: string) => {
      log += text;
    });
  }
  const exited = once(child, "close") as Promise<[number | null]>;
  const kill = async (signal: "SIGKILL" | "SIGTERM"): Promise<number | null> => {
    child.kill(signal);
    return (await exited)[0];
  };
  onCleanup(() => kill("SIGKILL"));
  await eventually(() => expect(log).toContain('"ingesting"'));
  return { kill, log: () => log };
}

describe("an ingest", () => {
  it("loses and doubles nothing when its process is killed", async () => {
    const here = await scene(used.broker);
    for (const [at, priority] of (["high", "normal", "low"] as const).entries()) {
      await here.produce(priority, 4_000, at * 4_000);
    }
    for (const atLeast of [500, 4_000]) {
      const ingesting = await startProcess(here);
      await eventually(
        async () => expect((await here.stored()).tasks).toBeGreaterThanOrEqual(atLeast),
        { everyMs: 5 },
      );
      await ingesting.kill("SIGKILL");
    }
    const left = (await here.stored()).tasks;
    expect(left).toBeLessThan(12_000); // Or it was not in the middle.
    await here.ingest();
    await here.expectExactly(12_000);
  });

  it("finishes its transaction when it is told to stop, and leaves the rest", async () => {
    const here = await scene(used.broker);
    await here.produce("normal", 6_000);
    const ingesting = await startProcess(here, ["--metrics", "0"]);
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
    await here.produce("normal", 6_000);
    // Two groups divide nothing between them: both read everything, at the same time.
    const [one, other] = await Promise.all(
      ["one", "other"].map((group) => here.ingest({ group, batchMessages: 100 })),
    );
    await here.expectExactly(6_000);
    const topic = `${here.prefix}.jobs.normal`;
    const moved = [one, other].map((ingest) => ingest?.metrics.moved.value({ topic }) ?? 0);
    expect(Math.max(...moved)).toBeGreaterThan(0);
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

  it("goes on when the broker was killed and came back", async () => {
    const here = await scene(used.broker);
    const ingest = await here.ingest({ batchMessages: 200 });
    await here.produce("normal", 3_000);
    await eventually(async () => expect((await here.stored()).tasks).toBeGreaterThan(0));
    await used.broker.kill("SIGKILL");
    await eventually(() => {
      const topics = ["high", "normal", "low"].map((one) => `${here.prefix}.jobs.${one}`);
      const failures = topics.map((topic) =>
        ingest.metrics.failures.value({ topic, doing: "read" }),
      );
      expect(Math.min(...failures)).toBeGreaterThan(0);
    });
    await used.broker.run();
    await eventually(() => here.produce("low", 1_000, 3_000));
    await here.expectExactly(4_000);
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
    await eventually(() => here.client.createTopics([{ topic, partitions: 1, replicas: 1 }]));
    await eventually(() => here.produce("normal", 150, 100));
    await here.expectExactly(250);
    const { rows } = await here.database.pool.query(
      "SELECT next_offset FROM tidemill.kafka_offsets WHERE topic = $1 ORDER BY created_at",
      [topic],
    );
    expect(rows).toEqual([{ next_offset: "100" }, { next_offset: "150" }]);
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
    const { Admin } = await import("@platformatic/kafka");
    const admin = new Admin({ clientId: "test", bootstrapBrokers: [here.broker.address] });
    onCleanup(() => admin.close());
    await admin.deleteRecords({
      topics: [{ name: topic, partitions: [{ partition: 0, offset: 80n }] }],
    });
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
