import { describe, expect, it } from "vitest";
import { queue } from "../../src/index.ts";
import { eventually } from "../support/eventually.ts";
import { type ClientName, scene, used } from "./scene.ts";
import { committedOf } from "./topics.ts";

describe.each<ClientName>(["platformatic", "kafkajs"])("an ingest through %s", (client) => {
  it("makes one task of each message, with the priority of its topic", async () => {
    const count = client === "platformatic" ? 10_000 : 1_000;
    const here = await scene(used.broker, { client });
    await here.produce("high", count);
    await here.produce("normal", count, count);
    await using ingest = await here.ingest();
    await here.produce("low", count, 2 * count);
    await here.expectExactly(3 * count);
    const { rows } = await here.database.pool.query(
      "SELECT queue, priority, count(*)::int FROM tidemill.live_tasks GROUP BY 1, 2 ORDER BY 2",
    );
    expect(rows).toEqual([2, 5, 8].map((priority) => ({ queue: "jobs", priority, count })));
    // What others see of a transaction may be heard before its own answer.
    const low = { topic: `${here.prefix}.jobs.low`, outcome: "stored" };
    await eventually(() => {
      expect(ingest.metrics.messages.value(low)).toBe(count);
      const statuses = ingest.status().flatMap(({ partitions }) => partitions);
      expect(statuses).toHaveLength(9);
      expect(statuses.every(({ lag }) => lag === 0n)).toBe(true);
    });
    // For tools that show the lag of groups.
    await eventually(async () => expect(await committedOf(here, low.topic)).toBe(count));
  });

  it("divides partitions among members that come and go, each message stored once", async () => {
    const here = await scene(used.broker, { client });
    const only = { topics: [{ topic: `${here.prefix}.jobs.normal` }] };
    const options = { ...only, prefix: undefined as never, batchMessages: 100 };
    const first = await here.ingest(options);
    const held = (ingest: typeof first): number =>
      ingest.status().reduce((sum, { partitions }) => sum + partitions.length, 0);
    await eventually(() => expect(held(first)).toBe(3));
    await here.produce("normal", 2_000);
    const second = await here.ingest(options);
    await here.produce("normal", 2_000, 2_000);
    await eventually(() =>
      expect([held(first) + held(second), held(second) > 0]).toEqual([3, true]),
    );
    await here.produce("normal", 2_000, 4_000);
    await first.stop();
    await here.produce("normal", 2_000, 6_000);
    await here.expectExactly(8_000);
    await eventually(() => expect(held(second)).toBe(3));
  });

  it("begins where PostgreSQL says, whatever the group says", async () => {
    const here = await scene(used.broker, { client });
    await here.produce("low", 100);
    const first = await here.ingest();
    await here.expectExactly(100);
    await first.stop();
    await here.produce("low", 100, 100);
    // Another group knows nothing, and Kafka would deliver everything again.
    await here.ingest({ group: "other" });
    await here.expectExactly(200);
    // Another source is another reader.
    await here.ingest({ group: "third", source: "again" });
    await eventually(async () => expect(await here.stored()).toEqual({ tasks: 400, numbers: 200 }));
  });

  it("waits for a database that does not answer, in bounded memory", async () => {
    const here = await scene(used.broker, { client });
    const ingest = await here.ingest({
      bufferMessages: 500,
      fetchBytes: 16_384,
      batchMessages: 50,
    });
    await eventually(() =>
      expect(ingest.status().flatMap(({ partitions }) => partitions)).toHaveLength(9),
    );
    const blocker = await here.database.session();
    await blocker.query("BEGIN");
    await blocker.query("SELECT FROM tidemill.kafka_offsets FOR UPDATE");
    await here.produce("normal", 5_000);
    const buffered = (): number => ingest.status().reduce((sum, one) => sum + one.buffered, 0);
    await eventually(() => expect(buffered()).toBeGreaterThanOrEqual(500));
    const failed = { topic: `${here.prefix}.jobs.normal`, doing: "store" };
    await eventually(() => expect(ingest.metrics.failures.value(failed)).toBeGreaterThan(0));
    expect(buffered()).toBeLessThan(1_200); // And one fetch of each partition.
    await blocker.query("ROLLBACK");
    await here.expectExactly(5_000);
  });

  it("makes tasks that a worker runs in the order of their keys", async () => {
    const here = await scene(used.broker, { client, partitions: 1 });
    const seen: number[] = [];
    const jobs = queue<{ n: number }>("jobs");
    const worker = await here.mill.startWorker({
      handlers: [jobs.handle(({ payload }) => void seen.push(payload.n))],
      concurrency: 4,
    });
    await using _ingest = await here.ingest();
    await here.client.publish(
      Array.from({ length: 50 }, (_, n) => ({
        topic: `${here.prefix}.jobs.high`,
        key: undefined,
        value: Buffer.from(JSON.stringify({ queue: "jobs", key: "one", payload: { n } })),
        headers: [],
      })),
    );
    await eventually(() => expect(seen).toHaveLength(50));
    expect(seen).toEqual(Array.from({ length: 50 }, (_, n) => n));
    await worker.stop();
  });
});
