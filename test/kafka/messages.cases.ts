import { describe, expect, it } from "vitest";
import { queue } from "../../src/index.ts";
import { connectKafka } from "../../src/kafka/index.ts";
import { onCleanup } from "../support/database.ts";
import { eventually } from "../support/eventually.ts";
import { type Scene, scene, used } from "./scene.ts";
import { headersOf, readTopic } from "./topics.ts";

async function publish(
  here: Scene,
  values: readonly (string | Buffer | undefined)[],
): Promise<void> {
  await here.client.publish(
    values.map((value, at) => ({
      topic: `${here.prefix}.jobs.high`,
      key: Buffer.from(`key ${at}`),
      value: typeof value === "string" ? Buffer.from(value) : value,
      headers: [{ name: "at", value: Buffer.from(String(at)) }],
    })),
  );
}

describe("messages that are no jobs", () => {
  it("are kept with the reason, once, and the others become tasks", async () => {
    const here = await scene(used.broker, { partitions: 1 });
    await here.mill.enqueue(queue("small", { payloadBytesMax: 10 }), 1);
    const job = (more: object): string => JSON.stringify({ payload: { n: 1 }, ...more });
    await publish(here, [
      job({ idempotencyKey: "a" }),
      "no JSON",
      job({ idempotencyKey: "a", payload: { n: 2 } }),
      undefined,
      job({ queue: "small", payload: "longer than ten bytes" }),
      Buffer.from([0xff, 0x00]),
      job({ idempotencyKey: "a" }),
      job({ payload: { n: 3 } }),
    ]);
    const ingest = await here.ingest();
    await eventually(async () => expect(await ingest.deadMessages.list()).toHaveLength(5));
    const dead = await ingest.deadMessages.list();
    expect(dead.map(({ offset, reason }) => [Number(offset), reason.slice(0, 40)])).toEqual([
      [1, expect.stringContaining("the message is not JSON") as string],
      [2, 'idempotency key "a" was used for another'],
      [3, "the message has no value"],
      [4, "the payload has 23 bytes, over the 10 th"],
      [5, "the message is not UTF-8"],
    ]);
    expect(dead[4]).toMatchObject({
      topic: `${here.prefix}.jobs.high`,
      partition: 0,
      key: Buffer.from("key 5"),
      value: Buffer.from([0xff, 0x00]),
      headers: [{ name: "at", value: Buffer.from("5") }],
    });
    const { rows } = await here.database.pool.query(
      "SELECT payload FROM tidemill.live_tasks WHERE queue = 'jobs' ORDER BY id",
    );
    expect(rows.map(({ payload }: { payload: string }) => payload)).toEqual(['{"n":1}', '{"n":3}']);
    await publish(here, ['{"payload":{"n":4}}']);
    await eventually(async () => expect((await here.stored()).numbers).toBe(3));
  });

  it("are tried again when whatever was wrong was mended, or removed", async () => {
    const here = await scene(used.broker, { partitions: 1 });
    await publish(here, ['{"queue":"early","payload":{"n":1}}', "garbage"]);
    const strict = await here.ingest({ queuesPerTenantMax: 0 });
    await eventually(async () => expect(await strict.deadMessages.list()).toHaveLength(2));
    const [first, second] = await strict.deadMessages.list();
    const [early, garbage] = [first?.id ?? "", second?.id ?? ""];
    expect(first?.reason).toContain('there is no queue "early"');
    await expect(strict.deadMessages.redrive([early])).rejects.toThrow("early");
    await here.mill.queues.ensure("early");
    await expect(strict.deadMessages.redrive([early, garbage])).rejects.toThrow("is still no job");
    expect(await strict.deadMessages.list()).toHaveLength(2);
    const [taskId] = await strict.deadMessages.redrive([early]);
    expect(await here.mill.tasks.get(taskId ?? "")).toMatchObject({ queue: "early", priority: 8 });
    await expect(strict.deadMessages.redrive([early])).rejects.toThrow("there is no dead message");
    expect(await strict.deadMessages.purge([garbage])).toBe(1);
    expect(await strict.deadMessages.list()).toEqual([]);
  });

  it("go to a topic of their own where one is named", async () => {
    const here = await scene(used.broker, { partitions: 1 });
    const deadLetterTopic = `${here.prefix}.dead`;
    await publish(here, ["garbage", '{"payload":{"n":1}}']);
    const options = { deadLetterTopic, createTopics: true, topicPartitions: 1 };
    const ingest = await here.ingest(options);
    await here.expectExactly(1);
    const [letter, ...others] = await readTopic(here, deadLetterTopic, (some) => some.length > 0);
    expect(others).toEqual([]);
    expect(letter).toMatchObject({ key: Buffer.from("key 0"), value: Buffer.from("garbage") });
    const headers = letter === undefined ? {} : headersOf(letter);
    expect(headers).toMatchObject({
      at: "0",
      "tidemill-dead-topic": `${here.prefix}.jobs.high`,
      "tidemill-dead-partition": "0",
      "tidemill-dead-offset": "0",
    });
    expect(headers["tidemill-dead-reason"]).toContain("not JSON");
    expect(await ingest.deadMessages.list()).toEqual([]);
  });
});

describe("topics that are missing", () => {
  it("are all named when an ingest refuses to start, and made if it is told to", async () => {
    const here = await scene(used.broker, { partitions: 0 });
    const names = ["high", "normal", "low"].map((one) => `${here.prefix}.jobs.${one}`);
    await expect(here.ingest()).rejects.toThrow(
      `these topics do not exist: ${names.join(", ")}; make them, or set createTopics`,
    );
    const ingest = await here.ingest({ createTopics: true, topicPartitions: 2 });
    await eventually(() =>
      expect(ingest.status().flatMap(({ partitions }) => partitions)).toHaveLength(6),
    );
    await here.produce("low", 10);
    await here.expectExactly(10);
  });
});

describe("a Kafka client", () => {
  it("says what cannot be reached", async () => {
    const client = await connectKafka({ brokers: ["127.0.0.1:1"], requestSeconds: 1 });
    onCleanup(() => client.close());
    await expect(client.describeTopics(["a"])).rejects.toMatchObject({
      code: "TM_UNAVAILABLE",
      retryable: true,
      message: expect.stringContaining("describe topic a") as string,
    });
  });
});
