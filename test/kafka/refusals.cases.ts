import { describe, expect, it } from "vitest";
import {
  type KafkaMessage,
  KafkaTaskPublisher,
  publishEvents,
  RefusedMessages,
} from "../../src/kafka/index.ts";
import { onCleanup } from "../support/database.ts";
import { eventually } from "../support/eventually.ts";
import { type ClientName, scene, used } from "./scene.ts";
import { headersOf, readTopic, smallTopic } from "./topics.ts";

const LIMIT = 2_000;
const large = "x".repeat(3 * LIMIT);

const numbersOf = (messages: readonly KafkaMessage[]): number[] =>
  messages.map(({ value }) => Number(String(value).split(" ")[0]));

describe.each<ClientName>(["platformatic", "kafkajs"])("what no broker takes, %s", (client) => {
  it("is told apart from what is sent along with it", async () => {
    const here = await scene(used.broker, { client, partitions: 0 });
    const [small, wide] = [`${here.prefix}.small`, `${here.prefix}.wide`];
    await smallTopic(here, small, LIMIT);
    await here.client.createTopics([{ topic: wide, partitions: 1, replicas: 1 }]);
    const message = (topic: string, n: number, text = "") => ({
      topic,
      key: Buffer.from("one"),
      value: Buffer.from(`${n} ${text}`),
      headers: [],
    });
    // Together they are far over the limit of the one, and two of them alone.
    const messages = Array.from({ length: 40 }, (_, n) => [
      message(small, n, n === 17 || n === 18 ? large : "x".repeat(100)),
      message(wide, n, "y".repeat(60_000)),
    ]).flat();
    const refused = await here.client.publish(messages);
    expect(refused.map((one) => one.message)).toEqual([messages[34], messages[36]]);
    expect(refused[0]?.reason).toContain("MESSAGE_TOO_LARGE");
    expect(await here.client.publish([message(small, 99)])).toEqual([]);
    for (const [topic, count] of [
      [small, 39],
      [wide, 40],
    ] as const) {
      const found = await readTopic(here, topic, (some) => new Set(numbersOf(some)).size >= count);
      const numbers = numbersOf(found);
      const first = numbers.filter((n, place) => numbers.indexOf(n) === place);
      expect(first.toSorted((a, b) => a - b)).toEqual(first);
      expect(first).toHaveLength(count);
      // This client tells which of them are stored: then none is stored twice.
      if (client === "platformatic") expect(numbers).toHaveLength(count);
    }
  });
});

describe("a message that no broker takes", () => {
  it("is kept with the reason, once, and holds up neither events nor tasks", async () => {
    const here = await scene(used.broker, { partitions: 0 });
    const topic = `${here.prefix}.small`;
    await smallTopic(here, topic, LIMIT);
    const refused = new RefusedMessages(here.mill, here.client);
    const stream = { type: "Order", id: "1" };
    for (const text of ["before", large, "behind"]) {
      await here.mill.append(stream, [{ type: "Said", data: { text } }]);
    }
    const worker = await here.mill.startWorker({
      consumers: [publishEvents("events", here.client, { topic })],
    });
    await here.mill.waitFor("events", { position: await here.mill.latestPosition() });
    await worker.stop();
    const value = (task: { readonly result: string | undefined }): string => {
      if (task.result === undefined) throw new Error("it has no result");
      return task.result;
    };
    const tasks = new KafkaTaskPublisher(here.mill, here.client, { name: "tasks", topic, value });
    onCleanup(() => tasks.stop());
    await tasks.start();
    for (const result of ['"before"', JSON.stringify(large), null, '"behind"']) {
      await here.database.pool.query(
        `INSERT INTO tidemill.task_history
                (id, created_at, run_at, lease_generation, attempt, max_attempts, priority, state,
                 tenant, queue, result)
         VALUES (1, NOW(), NOW(), 1, 1, 5, 5, 'completed', 'default', 'sql', $1)`,
        [result],
      );
    }
    const labels = { publication: "tasks", outcome: "refused" };
    await eventually(() => expect(tasks.metrics.ends.value(labels)).toBe(2));
    const kept = await refused.list();
    expect(kept.map(({ publisher, reason }) => [publisher, reason.slice(0, 17)])).toEqual([
      ["events", "MESSAGE_TOO_LARGE"],
      ["tasks", "MESSAGE_TOO_LARGE"],
      ["tasks", "no message could "],
    ]);
    expect(kept[2]?.reason).toContain("it has no result");
    expect(String(kept[0]?.value)).toContain(large);
    const texts = (await readTopic(here, topic, (some) => some.length >= 4)).map(({ value: one }) =>
      String(one)
        .replaceAll(/.*"text":/g, "")
        .slice(0, 8),
    );
    expect(texts).toEqual(['"before"', '"behind"', '"before"', '"behind"']);
    const wide = `${here.prefix}.wide`;
    await here.client.createTopics([{ topic: wide, partitions: 1, replicas: 1 }]);
    const [first = "", second = "", third = ""] = kept.map(({ id }) => id);
    await expect(refused.republish([first])).rejects.toThrow("still refused");
    await refused.republish([second, first], { topic: wide });
    const [event, task] = await readTopic(here, wide, (some) => some.length >= 2);
    expect(event && headersOf(event)["tidemill-event-type"]).toBe("Said");
    expect(task && headersOf(task)["tidemill-task-id"]).toBe("1");
    expect(await refused.purge([third])).toBe(1);
    expect(await refused.list()).toEqual([]);
  });

  it("goes to the table when the topic of dead messages does not take it", async () => {
    const here = await scene(used.broker, { partitions: 1 });
    const deadLetterTopic = `${here.prefix}.dead`;
    await smallTopic(here, deadLetterTopic, LIMIT);
    const topic = `${here.prefix}.jobs.high`;
    const values = ["no JSON", large, '{"payload":{"n":1}}'];
    await here.client.publish(
      values.map((value) => ({ topic, key: undefined, value: Buffer.from(value), headers: [] })),
    );
    const ingest = await here.ingest({ deadLetterTopic });
    await here.expectExactly(1);
    const [dead, ...others] = await ingest.deadMessages.list();
    expect(others).toEqual([]);
    expect(dead?.reason).toMatch(/not JSON.*; .*\.dead does not take it: MESSAGE_TOO_LARGE/s);
    const letters = await readTopic(here, deadLetterTopic, (some) => some.length > 0);
    expect(letters.map(({ value }) => String(value))).toEqual(["no JSON"]);
  });
});
