import { beforeEach, describe, expect, it } from "vitest";
import { ManualClock } from "../../test/support/manual-clock.ts";
import type { Statement } from "../db/statement.ts";
import { Claim } from "./claimed-task.ts";
import { Limiter } from "./limiter.ts";
import { TaskMetrics } from "./metrics.ts";
import type { TaskSession } from "./session.ts";

/** Grants whatever is asked for, and remembers it. */
class GrantingSession {
  readonly incarnation = 1;
  grants: { readonly queue: string; readonly slots: number }[] = [];
  booked = 0;
  readonly calls: { readonly name: string; readonly values: readonly unknown[] }[] = [];

  query({ name }: Statement, values: readonly unknown[]): Promise<unknown[]> {
    this.calls.push({ name, values });
    if (name === "limits_grants") return Promise.resolve(this.grants);
    if (name === "limits_book") return Promise.resolve([{ slots: this.booked }]);
    if (name !== "limits_take") return Promise.resolve([]);
    const [, , slots, starts, lateSeconds] = values;
    return Promise.resolve([
      { slots, starts, slice: "7", deadline: lateSeconds, retry_seconds: null },
    ]);
  }

  valuesOf(name: string): (readonly unknown[])[] {
    return this.calls.filter((call) => call.name === name).map(({ values }) => values);
  }
}

describe("starts of a rate", () => {
  let clock: ManualClock;
  let session: GrantingSession;
  let limiter: Limiter;

  beforeEach(() => {
    clock = new ManualClock();
    session = new GrantingSession();
    limiter = new Limiter(session as unknown as TaskSession, {
      workerId: "worker",
      leaseSeconds: 60,
      clock,
      metrics: new TaskMetrics(),
      held: () => 0,
    });
    const rate = { count: 100, seconds: 1 };
    limiter.use(new Map([["orders", { concurrency: null, rate, keyRate: null }]]));
  });

  /** A claim that is over so long after its starts were asked for. */
  const claim = async (tookMs: number, count: number): Promise<void> => {
    await limiter.take("orders", 5);
    clock.advance(tookMs);
    await limiter.spent("orders", count);
  };

  const lateSeconds = (): unknown[] => session.valuesOf("limits_take").map((values) => values[4]);

  it("last a second, or twice as long as the last claim took, up to a minute", async () => {
    for (const tookMs of [3, 700, 4_000, 50_000, 3, 3]) await claim(tookMs, 5);
    expect(lateSeconds()).toEqual([1, 1, 1.4, 8, 60, 1]);
  });

  it("are asked for again soon when the claim came too late for them", async () => {
    await claim(1_500, 0);
    expect(limiter.restMs).toBeLessThanOrEqual(10);
    clock.advance(10);
    await claim(1_500, 5);
    expect(lateSeconds()).toEqual([1, 3]);
  });

  it("are not asked for again at once when there was nothing to claim", async () => {
    await claim(3, 0);
    expect(limiter.restMs).toBe(Infinity);
  });

  it("that are left are used up before others are taken", async () => {
    await limiter.take("orders", 4);
    await limiter.take("orders", 5);
    expect(limiter.allowed("orders")).toBe(4);
    expect(session.valuesOf("limits_take")).toHaveLength(1);
  });

  it("count from the claim that used them, and the others go back", async () => {
    await limiter.take("orders", 5);
    expect(limiter.proofs()).toEqual([{ queue: "orders", slots: 0, deadline: 1 }]);
    const made = new Claim("claim");
    made.until = new Date(1_060_000);
    await limiter.spent("orders", 3, made);
    expect(session.valuesOf("limits_use")).toEqual([["orders", "7", 3, 2, 1_000.002]]);
    expect(limiter.allowed("orders")).toBe(0);
    expect(limiter.proofs()).toEqual([]);
    await limiter.spent("orders", 0);
    expect(session.valuesOf("limits_use")).toHaveLength(1);
  });

  describe("of which many more are allowed", () => {
    const asked = (): unknown[] => session.valuesOf("limits_take").map((values) => values[3]);
    const made = (ms: number): Claim => {
      const one = new Claim("claim");
      one.until = new Date(60_000 + ms);
      return one;
    };

    it("are taken for several claims at once, and count from the last of them", async () => {
      await limiter.take("orders", 2);
      expect(limiter.allowed("orders")).toBe(8);
      await limiter.spent("orders", 2, made(1_000));
      await limiter.take("orders", 2);
      await limiter.spent("orders", 3, made(2_000));
      expect(asked()).toEqual([8]);
      expect(session.valuesOf("limits_use")).toEqual([]);
      await limiter.spent("orders", 3, made(3_000));
      expect(session.valuesOf("limits_use")).toEqual([["orders", "7", 8, 0, 3.002]]);
    });

    it("are taken anew when too few are left for a claim", async () => {
      await limiter.take("orders", 2);
      await limiter.spent("orders", 7, made(1_000));
      await limiter.take("orders", 2);
      expect(session.valuesOf("limits_use")).toEqual([["orders", "7", 7, 1, 1.002]]);
      expect(limiter.allowed("orders")).toBe(8);
    });

    it("go back when nothing comes for a while, when it stops and when they grow old", async () => {
      await limiter.take("orders", 2);
      await limiter.spent("orders", 2, made(1_000));
      clock.advance(limiter.restMs);
      await limiter.trim();
      expect(session.valuesOf("limits_use")).toEqual([["orders", "7", 2, 6, 1.002]]);
      await limiter.take("orders", 2);
      await limiter.spent("orders", 1, made(2_000));
      await limiter.trim(true);
      expect(session.valuesOf("limits_use")[1]).toEqual(["orders", "7", 1, 7, 2.002]);
      await limiter.take("orders", 2);
      await limiter.spent("orders", 1, made(3_000));
      clock.advance(600);
      expect(limiter.allowed("orders")).toBe(0);
      expect(limiter.proofs()).toEqual([]);
      await limiter.take("orders", 2);
      expect(session.valuesOf("limits_use")[2]).toEqual(["orders", "7", 1, 7, 3.002]);
      expect(asked()).toEqual([8, 8, 8, 8]);
    });
  });
});

describe("slots of a limit that comes while tasks run", () => {
  const LIMIT = { concurrency: 2, rate: null, keyRate: null };
  let clock: ManualClock;
  let session: GrantingSession;
  let limiter: Limiter;
  let held: number;

  beforeEach(() => {
    clock = new ManualClock();
    session = new GrantingSession();
    held = 5;
    limiter = new Limiter(session as unknown as TaskSession, {
      workerId: "worker",
      leaseSeconds: 60,
      clock,
      metrics: new TaskMetrics(),
      held: () => held,
    });
  });

  const returned = (): unknown[] => session.valuesOf("limits_return").map((values) => values[2]);

  it("are as many as the database gave with it, and go back as they come free", async () => {
    session.grants = [{ queue: "orders", slots: 5 }];
    limiter.use(new Map([["orders", LIMIT]]));
    held = 3;
    expect(limiter.allowed("orders")).toBe(0);
    await limiter.trim();
    expect(returned()).toEqual([2]);
    expect(session.valuesOf("limits_book")).toEqual([]);
  });

  it("are read again when it comes while they are read", async () => {
    limiter.use(new Map([["refunds", LIMIT]]));
    const taking = limiter.take("refunds", 0);
    session.grants = [{ queue: "orders", slots: 5 }];
    limiter.use(new Map([["orders", LIMIT]]));
    await taking;
    held = 0;
    await limiter.trim();
    expect(session.valuesOf("limits_grants")).toHaveLength(2);
  });

  it("are booked for what was claimed before it was heard of", async () => {
    session.booked = 5;
    limiter.use(new Map([["orders", LIMIT]]));
    await limiter.take("orders", 1);
    expect(session.valuesOf("limits_book")).toEqual([["orders", "worker"]]);
    expect(session.valuesOf("limits_take").map((values) => values[2])).toEqual([1]);
  });

  it("hold back a rate no more once the limit is lifted", async () => {
    limiter.use(new Map([["orders", LIMIT]]));
    const rate = { count: 100, seconds: 1 };
    limiter.use(new Map([["orders", { concurrency: null, rate, keyRate: null }]]));
    await limiter.take("orders", 5);
    expect(limiter.allowed("orders")).toBe(5);
  });
});
