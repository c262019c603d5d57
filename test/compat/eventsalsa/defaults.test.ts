import { describe, expect, it } from "vitest";
import { ConfigError, consumer } from "../../../src/index.ts";
import { resolveWorkerOptions, type WorkerOptions } from "../../../src/worker/options.ts";

const consumers = [consumer("orders", { handle: () => {} })];

describe("defaults", () => {
  it('are the source\'s with compat "eventsalsa"', () => {
    expect(resolveWorkerOptions({ consumers }, "eventsalsa")).toMatchObject({
      batchSize: 100,
      batchPause: 200,
      batchTimeout: 30_000,
      maxConsecutiveFailures: 5,
      pollInterval: 1_000,
      maxPollInterval: 30_000,
      dispatcherInterval: 200,
      heartbeatInterval: 5_000,
      heartbeatTimeout: 30_000,
      rebalanceInterval: 5_000,
      staleGapThreshold: 30_000,
      staleGapHarborLag: 8,
      dispatcherStrategy: "poll",
      leaderStrategy: "advisory",
      assignment: "round-robin",
      onFailure: "stop-worker",
    });
  });

  it("keep to proof instead of time for gaps, with and without compat", () => {
    expect(resolveWorkerOptions({ consumers }, "eventsalsa").gapPolicy).toBe("epoch");
    expect(resolveWorkerOptions({ consumers }, undefined).gapPolicy).toBe("epoch");
  });

  it("are ours without it", () => {
    expect(resolveWorkerOptions({ consumers }, undefined)).toMatchObject({
      heartbeatInterval: 3_000,
      heartbeatTimeout: 10_000,
      batchSize: 500,
      batchPause: 0,
      staleGapThreshold: 10_000,
      assignment: "sticky",
      onFailure: "quarantine",
    });
  });

  it("give way to what is asked for", () => {
    const asked = { batchSize: 7, heartbeatInterval: 1_000, heartbeatTimeout: 4_000 };
    expect(resolveWorkerOptions({ consumers, ...asked }, "eventsalsa")).toMatchObject(asked);
  });
});

describe('what compat "eventsalsa" refuses', () => {
  const resolve = (options: Partial<WorkerOptions>): unknown =>
    resolveWorkerOptions({ consumers, ...options }, "eventsalsa");
  const orders = (more: object): Pick<WorkerOptions, "consumers"> => ({
    consumers: [consumer("orders", { handle: () => {}, ...more })],
  });

  it.each<[string, Partial<WorkerOptions>, RegExp]>([
    ["an assignment that other leaders would undo", { assignment: "sticky" }, /round-robin/],
    ["partitions", orders({ partitions: 2 }), /"orders".*partition/],
    ["quarantine for all", { onFailure: "quarantine" }, /"orders".*quarantine/],
    ["quarantine of one consumer", orders({ onFailure: "quarantine" }), /"orders".*quarantine/],
    ["parking", orders({ onFailure: "park" }), /"orders".*parking/],
  ])("%s", (_, options, message) => {
    expect(() => resolve(options)).toThrow(ConfigError);
    expect(() => resolve(options)).toThrow(message);
  });

  it("nothing that every member can do", () => {
    expect(resolve(orders({ partitions: 1, aggregateTypes: ["Order"] }))).toBeDefined();
  });
});
