import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { ManualClock } from "../../test/support/manual-clock.ts";
import { type Amount, checkQuota, grantFor, NOTHING, type Quota, QuotaError } from "./quota.ts";
import { QuotaBook } from "./quota-book.ts";

const quota = (given: Partial<Quota>): Quota => ({
  pendingTasks: null,
  pendingBytes: null,
  rate: null,
  ...given,
});

describe("a grant", () => {
  const wanted = { tasks: 1, bytes: 1 };

  it("is half of what is left, all of it if that is wanted, never more", () => {
    const of = (tasks: number): Amount => ({ tasks, bytes: 0 });
    const give = (used: number, others: number, inFlight: number, want: number): number =>
      grantFor(quota({ pendingTasks: 100 }), {
        used: of(used),
        others: of(others),
        inFlight: of(inFlight),
        wanted: of(want),
      }).tasks;
    expect(give(0, 0, 0, 1)).toBe(50);
    expect(give(20, 20, 20, 1)).toBe(20);
    expect(give(0, 0, 0, 80)).toBe(80);
    expect(give(50, 0, 0, 80)).toBe(50);
    expect(give(90, 20, 0, 1)).toBe(0);
  });

  it("is not limited in what has no limit", () => {
    const grant = grantFor(quota({ pendingBytes: 10 }), {
      used: NOTHING,
      others: NOTHING,
      inFlight: NOTHING,
      wanted,
    });
    expect(grant).toEqual({ tasks: Infinity, bytes: 5 });
  });
});

/** Servers as they are, over a table that is a number: no order of acts stores more than that. */
it("servers together never store more than the quota, in whatever order they act", () => {
  const act = fc.record({
    server: fc.nat(2),
    kind: fc.constantFrom("create", "create", "settle", "refuse", "renew", "shrink", "end"),
    tasks: fc.oneof(fc.integer({ min: 1, max: 7 }), fc.integer({ min: 8, max: 30 })),
  });
  fc.assert(
    fc.property(fc.integer({ min: 0, max: 40 }), fc.array(act, { maxLength: 120 }), (max, acts) => {
      const clock = new ManualClock();
      const limit = quota({ pendingTasks: max });
      const books = [0, 1, 2].map(() => new QuotaBook(limit, clock));
      const underWay: { tasks: number; settle: (isStored: boolean) => void }[][] = [[], [], []];
      const granted = [0, 0, 0];
      let stored = 0;
      for (const { server, kind, tasks } of acts) {
        const book = books[server];
        const open = underWay[server];
        if (book === undefined || open === undefined) continue;
        const wanted = { tasks, bytes: 0 };
        if (kind === "renew") {
          const inFlight = book.beginRenewal();
          const others = granted.reduce((sum, one, at) => (at === server ? sum : sum + one), 0);
          const used = { tasks: stored, bytes: 0 };
          const usage = { used, others: { tasks: others, bytes: 0 }, inFlight, wanted };
          const grant = grantFor(limit, usage);
          granted[server] = book.heldWith(grant).tasks;
          book.granted({ ...grant, servers: 1, untilMs: Infinity });
        } else if (kind === "shrink") {
          granted[server] = book.shrink(tasks > 3 ? 0 : Infinity)?.tasks ?? granted[server] ?? 0;
        } else if (kind === "create") {
          const settle = book.take(wanted);
          if (settle !== undefined) open.push({ tasks, settle });
        } else if (kind === "end") stored = Math.max(0, stored - tasks);
        else {
          const first = open.shift();
          if (first === undefined) continue;
          if (kind === "settle") stored += first.tasks;
          first.settle(kind === "settle");
        }
        expect(stored).toBeLessThanOrEqual(max);
      }
      // And if each of them stores all that it has under way, and all that it may still take.
      for (const [server, book] of books.entries()) {
        for (const one of underWay[server] ?? []) stored += one.tasks;
        while (stored <= max && book.take({ tasks: 1, bytes: 0 }) !== undefined) stored += 1;
      }
      expect(stored).toBeLessThanOrEqual(max);
    }),
    { numRuns: 2_000 },
  );
});

describe("a book", () => {
  const granted = (book: QuotaBook, tasks: number, untilMs = Infinity): void =>
    book.granted({ tasks, bytes: Infinity, servers: 1, untilMs });

  it("trusts a grant for its time only, and none of another quota", () => {
    const clock = new ManualClock();
    const book = new QuotaBook(quota({ pendingTasks: 10 }), clock);
    expect(book.take({ tasks: 1, bytes: 0 })).toBeUndefined();
    granted(book, 5, clock.now() + 100);
    expect(book.take({ tasks: 5, bytes: 0 })).toBeDefined();
    expect(book.take({ tasks: 1, bytes: 0 })).toBeUndefined();
    granted(book, 5, clock.now() + 100);
    clock.advance(100);
    expect(book.take({ tasks: 1, bytes: 0 })).toBeUndefined();
    granted(book, 5);
    book.change(quota({ pendingTasks: 2 }));
    expect(book.take({ tasks: 1, bytes: 0 })).toBeUndefined();
    expect(book.beginRenewal()).toEqual({ tasks: 5, bytes: 0 });
  });

  it("gives back what was not stored, unless another grant came meanwhile", () => {
    const book = new QuotaBook(quota({ pendingTasks: 10 }), new ManualClock());
    granted(book, 2);
    const first = book.take({ tasks: 2, bytes: 0 });
    first?.(false);
    const again = book.take({ tasks: 2, bytes: 0 });
    expect(again).toBeDefined();
    book.beginRenewal();
    granted(book, 1);
    again?.(false);
    expect(book.take({ tasks: 2, bytes: 0 })).toBeUndefined();
    expect(book.beginRenewal()).toEqual(NOTHING);
  });

  it("holds the rate, lets one create be larger than it, and says when to come back", () => {
    const clock = new ManualClock();
    const book = new QuotaBook(quota({ rate: { count: 10, seconds: 1 } }), clock);
    granted(book, Infinity);
    expect(book.take({ tasks: 30, bytes: 0 })).toBeDefined();
    let thrown: unknown;
    try {
      book.take({ tasks: 1, bytes: 0 });
    } catch (error) {
      thrown = error;
    }
    expect(thrown).toBeInstanceOf(QuotaError);
    expect(thrown).toMatchObject({ code: "TM_QUOTA", retryable: true, retryAfterMs: 2_100 });
    clock.advance(2_099);
    expect(() => book.take({ tasks: 1, bytes: 0 })).toThrow(QuotaError);
    clock.advance(2);
    expect(book.take({ tasks: 1, bytes: 0 })).toBeDefined();
  });

  it("shares the rate among servers", () => {
    const clock = new ManualClock();
    const book = new QuotaBook(quota({ rate: { count: 10, seconds: 1 } }), clock);
    book.granted({ tasks: Infinity, bytes: Infinity, servers: 2, untilMs: Infinity });
    let taken = 0;
    const takeAll = (): void => {
      try {
        for (;;) {
          book.take({ tasks: 1, bytes: 0 });
          taken += 1;
        }
      } catch (error) {
        expect(error).toBeInstanceOf(QuotaError);
      }
    };
    takeAll();
    taken = 0;
    for (let second = 0; second < 20; second += 1) {
      clock.advance(1_000);
      takeAll();
    }
    expect(taken).toBe(100);
  });
});

it.each<[changes: object, says: string]>([
  [{ pendingTasks: -1 }, "pendingTasks must be a whole number of at least 0"],
  [{ pendingBytes: 1.5 }, "pendingBytes must be a whole number"],
  [{ pendingTask: 1 }, 'did you mean "pendingTasks"?'],
  [{ rate: { count: 0 } }, "rate.count must be"],
  [{ rate: { count: 1, seconds: 0 } }, "rate.seconds must be"],
  [{ rate: 5 }, "rate must be { count, seconds }"],
])("refuses the quota %j", (changes, says) => {
  expect(() => checkQuota("acme", changes)).toThrow(says);
});

it("what was taken under another quota is not put back into it", () => {
  const book = new QuotaBook(quota({ pendingTasks: 100 }), new ManualClock());
  const grant = { tasks: 50, bytes: 0, servers: 1, untilMs: Infinity };
  book.beginRenewal();
  book.granted(grant);
  const settle = book.take({ tasks: 50, bytes: 0 });
  book.change(quota({ pendingTasks: 1 }));
  settle?.(false);
  expect(book.take({ tasks: 50, bytes: 0 })).toBeUndefined();
});

it("a grant that was asked for under another quota is dropped", () => {
  const book = new QuotaBook(quota({ pendingTasks: 100 }), new ManualClock());
  book.beginRenewal();
  const grant = { tasks: 50, bytes: 0, servers: 1, untilMs: Infinity };
  const held = book.heldWith(grant);
  book.change(quota({ pendingTasks: 1 }));
  book.granted(grant, held);
  expect(book.take({ tasks: 1, bytes: 0 })).toBeUndefined();
  // Others are told that it is not held any more.
  expect(book.shrink(0)).toMatchObject({ tasks: 0, bytes: 0 });
});
