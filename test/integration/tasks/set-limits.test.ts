import { describe, expect, it } from "vitest";
import { type LimitChanges, type LimitOptions, queue, type Tidemill } from "../../../src/index.ts";
import { type TestDatabase, testDatabase } from "../../support/database.ts";

const RATE = { count: 100, seconds: 60 };

async function open(limits: LimitOptions): Promise<{ database: TestDatabase; mill: Tidemill }> {
  const database = await testDatabase();
  return { database, mill: await define(database, limits) };
}

/** As a process does that starts with this definition. */
async function define(database: TestDatabase, limits: LimitOptions): Promise<Tidemill> {
  const mill = await database.connect();
  await mill.enqueue(queue("orders", { limits }), 1);
  return mill;
}

async function limitsOf(mill: Tidemill): Promise<object | undefined> {
  return (await mill.queues.list())[0]?.limits;
}

describe("limits that a person sets", () => {
  it("leave the others as they are", async () => {
    const { mill } = await open({ concurrency: 8, rate: RATE });
    await mill.queues.setLimits("orders", { concurrency: 2 });
    expect(await limitsOf(mill)).toEqual({ concurrency: 2, rate: RATE, keyRate: null });
    await mill.queues.setLimits("orders", { keyRate: { count: 1 } });
    const keyRate = { count: 1, seconds: 1 };
    expect(await limitsOf(mill)).toEqual({ concurrency: 2, rate: RATE, keyRate });
    await mill.queues.setLimits("orders", {});
    expect(await limitsOf(mill)).toEqual({ concurrency: 2, rate: RATE, keyRate });
  });

  it("lift those that are null, and only those", async () => {
    const { mill } = await open({ concurrency: 8, rate: RATE });
    await mill.queues.setLimits("orders", { rate: null });
    expect(await limitsOf(mill)).toEqual({ concurrency: 8, rate: null, keyRate: null });
  });

  it("both hold when two people change different ones at once", async () => {
    const { mill } = await open({});
    await Promise.all([
      mill.queues.setLimits("orders", { concurrency: 2 }),
      mill.queues.setLimits("orders", { rate: RATE }),
    ]);
    expect(await limitsOf(mill)).toEqual({ concurrency: 2, rate: RATE, keyRate: null });
  });

  it("hold over a later definition, which decides about the others", async () => {
    const { database, mill } = await open({ concurrency: 8, rate: RATE });
    await mill.queues.setLimits("orders", { concurrency: 2 });
    const rate = { count: 5, seconds: 1 };
    await define(database, { concurrency: 20, rate });
    expect(await limitsOf(mill)).toEqual({ concurrency: 2, rate, keyRate: null });
    await mill.queues.resetLimits("orders");
    expect(await limitsOf(mill)).toEqual({ concurrency: 20, rate, keyRate: null });
  });

  it("that cannot be are refused, and nothing changes", async () => {
    const { mill } = await open({ concurrency: 8 });
    const refused: [LimitChanges, RegExp][] = [
      [{ concurrency: -1 }, /limits.concurrency of queue "orders" must be a whole number/],
      [{ rate: { count: 0 } }, /limits.rate.count of queue "orders" must be/],
      [{ concurency: null } as LimitChanges, /did you mean "concurrency"/],
    ];
    for (const [limits, words] of refused) {
      await expect(mill.queues.setLimits("orders", limits)).rejects.toThrow(words);
    }
    expect(await limitsOf(mill)).toEqual({ concurrency: 8, rate: null, keyRate: null });
  });
});
