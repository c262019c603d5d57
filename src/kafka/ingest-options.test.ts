import { describe, expect, it } from "vitest";
import { resolveKafkaOptions } from "./connect-options.ts";
import { type KafkaIngestOptions, resolveIngestOptions } from "./ingest-options.ts";

describe("resolveIngestOptions", () => {
  it("reads three topics of a prefix", () => {
    expect(resolveIngestOptions({ prefix: "foreman" }).topics).toEqual([
      { topic: "foreman.jobs.high", priority: "high" },
      { topic: "foreman.jobs.normal", priority: "normal" },
      { topic: "foreman.jobs.low", priority: "low" },
    ]);
  });

  it("reads topics of any name", () => {
    const topics = [{ topic: "a", priority: 9 }, { topic: "b" }];
    expect(resolveIngestOptions({ topics }).topics).toEqual([
      { topic: "a", priority: 9 },
      { topic: "b", priority: "normal" },
    ]);
  });

  it.each<[options: unknown, message: string]>([
    [{}, "give prefix"],
    [{ prefix: "a", topics: [{ topic: "b" }] }, "not both"],
    [{ prefix: "a", topic: "b" }, 'did you mean "topics"?'],
    [{ prefix: "a b" }, "prefix must have letters"],
    [{ topics: [] }, "topics must be a list"],
    [{ topics: [{ topic: "a" }, { topic: "a" }] }, "one topic twice"],
    [{ topics: [{ topic: "a", priority: 10 }] }, "priority must be"],
    [{ topics: [{ name: "a" }] }, "unknown topics option"],
    [{ prefix: "a", deadLetterTopic: "a.jobs.low" }, "must not be one of the topics"],
    [{ prefix: "a", batchMessages: 0 }, "batchMessages must be a whole number"],
    [{ prefix: "a", startFrom: "middle" }, "startFrom must be"],
    [{ prefix: "a", createTopics: "yes" }, "createTopics must be true or false"],
    [{ prefix: "a", source: "" }, "source must be a text"],
    [{ prefix: "a", decode: "json" }, "decode must be a function"],
  ])("refuses %j", (options, message) => {
    expect(() => resolveIngestOptions(options as KafkaIngestOptions)).toThrow(message);
  });
});

describe("resolveKafkaOptions", () => {
  it.each<[options: unknown, message: string]>([
    [{}, "brokers must be a list"],
    [{ brokers: ["kafka"] }, "brokers must be a list"],
    [{ brokers: ["kafka:9092"], client: "confluent" }, "client must be"],
    [{ brokers: ["kafka:9092"], ssl: true }, "unknown Kafka option"],
    [{ brokers: ["kafka:9092"], sasl: { mechanism: "PLAIN" } }, "needs username and password"],
    [{ brokers: ["kafka:9092"], sasl: { mechanism: "OAUTHBEARER" } }, "needs token"],
  ])("refuses %j", (options, message) => {
    expect(() => resolveKafkaOptions(options as { brokers: string[] })).toThrow(message);
  });
});
