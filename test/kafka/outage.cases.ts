import { describe, expect, it } from "vitest";
import { KafkaTaskPublisher, publishEvents } from "../../src/kafka/index.ts";
import { onCleanup } from "../support/database.ts";
import { eventually } from "../support/eventually.ts";
import { endBySql, firstAppearances } from "./ends.ts";
import { scene, used } from "./scene.ts";
import { headersOf, readTopic } from "./topics.ts";

describe("a broker that is killed and comes back", () => {
  it("loses no message, event or end of a task, and changes no order", async () => {
    const here = await scene(used.broker);
    const [events, tasks] = [`${here.prefix}.events`, `${here.prefix}.tasks`];
    const topics = [events, tasks].map((topic) => ({ topic, partitions: 1, replicas: 1 }));
    await here.client.createTopics(topics);
    const append = async (from: number, count: number): Promise<void> => {
      for (let n = from; n < from + count; n += 1) {
        const stream = { type: "Order", id: String(n % 3) };
        await here.mill.append(stream, [{ type: "Counted", data: { n } }]);
        await here.database.pool.query(endBySql(n, `${n % 3}`));
      }
    };
    const publisher = new KafkaTaskPublisher(here.mill, here.client, {
      name: "ends",
      topic: tasks,
    });
    onCleanup(() => publisher.stop());
    await publisher.start();
    const worker = await here.mill.startWorker({
      consumers: [publishEvents("to_kafka", here.client, { topic: events })],
      heartbeatInterval: 200,
      heartbeatTimeout: 10_000, // It is the broker that is away, not the worker.
      rebalanceInterval: 200,
      maxConsecutiveFailures: 1,
    });
    const ingest = await here.ingest({ batchMessages: 200 });
    await append(0, 30);
    await here.produce("normal", 3_000);
    await eventually(async () => expect((await here.stored()).tasks).toBeGreaterThan(0));
    await here.mill.waitFor("to_kafka", { position: await here.mill.latestPosition() });
    await used.broker.kill("SIGKILL");
    await append(30, 30);
    await eventually(() => {
      const failures = ["high", "normal", "low"].map((one) =>
        ingest.metrics.failures.value({ topic: `${here.prefix}.jobs.${one}`, doing: "read" }),
      );
      expect(Math.min(...failures)).toBeGreaterThan(0);
      const outcome = { consumer: "to_kafka", outcome: "unavailable" };
      expect(here.mill.metrics.batches.value(outcome)).toBeGreaterThan(0);
      expect(publisher.metrics.failures.value({ publication: "ends" })).toBeGreaterThan(0);
    });
    await used.broker.run();
    await eventually(() => here.produce("low", 1_000, 3_000));
    await here.expectExactly(4_000);
    await here.mill.waitFor("to_kafka", { position: await here.mill.latestPosition() });
    await worker.stop();
    const inOrder = [0, 1, 2].map((key): [string, number[]] => [
      String(key),
      Array.from({ length: 20 }, (_, at) => at * 3 + key),
    ]);
    for (const [topic, id] of [
      [events, "tidemill-event-position"],
      [tasks, "tidemill-end-position"],
    ] as const) {
      const seen = await readTopic(here, topic, (some) => {
        return new Set(some.map((one) => headersOf(one)[id])).size === 60;
      });
      const numberOf = (value: Buffer | undefined): number => {
        type Told = { readonly id: string; readonly data?: { readonly n: number } };
        const { data, id: task } = JSON.parse(String(value)) as Told;
        return data?.n ?? Number(task);
      };
      expect(
        [...firstAppearances(seen, ({ value }) => numberOf(value))].toSorted(
          ([a], [b]) => Number(a) - Number(b),
        ),
      ).toEqual(inOrder);
    }
    const [first] = await readTopic(here, events, (some) => some.length > 0);
    expect(JSON.parse(String(first?.value))).toMatchObject({
      position: "1",
      stream: { type: "Order", id: "0" },
      streamVersion: "1",
      type: "Counted",
      data: { n: 0 },
    });
  });
});
