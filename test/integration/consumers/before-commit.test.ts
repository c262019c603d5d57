import { describe, expect, it } from "vitest";
import { consumer, UnavailableError } from "../../../src/index.ts";
import { type TestDatabase, testDatabase } from "../../support/database.ts";

async function withEvents(count: number): Promise<TestDatabase> {
  const database = await testDatabase();
  const mill = await database.connect();
  await mill.append(
    { type: "A", id: "1" },
    Array.from({ length: count }, (_, n) => ({ type: "T", data: n })),
  );
  await database.pool.query("CREATE TABLE seen (events INT[])");
  return database;
}

describe("beforeCommit", () => {
  it("is called once per batch with what the handler gathered, and commits with it", async () => {
    const database = await withEvents(3);
    const mill = await database.connect();
    const gathered: unknown[] = [];
    const batched = consumer("batched", {
      handle: ({ data }) => void gathered.push(data),
      beforeCommit: ({ tx }) => tx.query("INSERT INTO seen VALUES ($1)", [gathered]),
    });
    await mill.runToHead({ consumers: [batched] });
    const { rows } = await database.pool.query("SELECT events FROM seen");
    expect(rows).toEqual([{ events: [0, 1, 2] }]);
  });

  it("undoes the batch when it throws, which counts as a failure of its last event", async () => {
    const database = await withEvents(2);
    const mill = await database.connect();
    let calls = 0;
    const failing = consumer("failing", {
      handle: () => {},
      beforeCommit: async ({ tx }) => {
        calls += 1;
        await tx.query("INSERT INTO seen VALUES ($1)", [[calls]]);
        if (calls < 3) throw new Error("not yet");
      },
    });
    await mill.runToHead({ consumers: [failing], pollInterval: 5, maxPollInterval: 5 });
    const { rows } = await database.pool.query("SELECT events FROM seen");
    expect(rows).toEqual([{ events: [3] }]);
    expect(mill.metrics.batches.value({ consumer: "failing", outcome: "failed" })).toBe(2);
  });

  it("counts nothing against the events when somebody cannot be reached", async () => {
    const database = await withEvents(2);
    const mill = await database.connect();
    let calls = 0;
    const waiting = consumer("waiting", {
      handle: () => {},
      beforeCommit: () => {
        calls += 1;
        if (calls < 4) throw new UnavailableError("the receiver is away");
      },
    });
    await mill.runToHead({ consumers: [waiting], maxConsecutiveFailures: 1 });
    expect(calls).toBe(4);
  });

  it("counts nothing against the events when the time is over meanwhile", async () => {
    const database = await withEvents(2);
    const mill = await database.connect();
    let calls = 0;
    const slow = consumer("slow", {
      handle: () => {},
      beforeCommit: async ({ signal }) => {
        calls += 1;
        if (calls < 3) await new Promise((resolve) => signal.addEventListener("abort", resolve));
      },
    });
    const options = { batchTimeout: 1_000, maxConsecutiveFailures: 1 };
    await mill.runToHead({ consumers: [slow], ...options });
    expect(calls).toBe(3);
    expect(mill.metrics.batches.value({ consumer: "slow", outcome: "failed" })).toBe(0);
  });
});
