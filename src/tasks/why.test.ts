import { describe, expect, it } from "vitest";
import type { WhyFacts } from "./sql/why.ts";
import { explain } from "./why.ts";

const ASKED_AT = "2026-05-04T12:00:00.000Z";
const ago = (seconds: number): Date => new Date(Date.parse(ASKED_AT) - seconds * 1000);

/** A keyed task that nothing keeps from running but what is given. */
function why(given: Partial<WhyFacts>): string {
  const facts: WhyFacts = {
    state: "pending",
    queue: "orders",
    tenant: "default",
    partition_key: "key",
    attempt: 0,
    leased_by: null,
    lease_until: null,
    run_at: ago(100),
    on_probation: false,
    cancel_reason: null,
    is_early: false,
    paused_at: null,
    pause_reason: null,
    limits: { concurrency: null, rate: null },
    key_space: "orders",
    holds: null,
    before: null,
    owner: "worker",
    owned_since: ago(3_600),
    workers: 1,
    granted: null,
    rate_until: null,
    key_rates: null,
    key_starts: null,
    asked_at: ago(0),
    ahead: 0,
    ...given,
  };
  return explain({} as never, facts); // Of a task that is live nothing else is asked.
}

const starts = (...seconds: number[]): string[] => seconds.map((one) => ago(one).toISOString());
const PER_MINUTE = { count: 2, seconds: 60 };
const NEXT = "it is next in its lane on worker worker and starts when a worker has a free slot";

describe("why a task of a queue with a rate waits", () => {
  it("until the next start is allowed", () => {
    const limits = { concurrency: null, rate: { count: 1, seconds: 5 } };
    expect(why({ limits, rate_until: ago(-3) })).toBe(
      'queue "orders" is rate limited until 2026-05-04T12:00:03.000Z: ' +
        "its 1 start per 5 s is used up",
    );
    expect(why({ limits })).toBe(NEXT);
  });
});

describe("why a task of a key with a rate waits", () => {
  it("until as many starts as are allowed are a period ago", () => {
    const used = 'key "key" is rate limited until 2026-05-04T12:00:20.000Z: ';
    expect(why({ key_rates: [PER_MINUTE], key_starts: starts(10, 40, 50) })).toBe(
      `${used}its 2 starts per 60 s are used up`,
    );
  });

  it("for the rate that makes it wait longest", () => {
    const key_rates = [{ count: 1, seconds: 15 }, PER_MINUTE];
    expect(why({ key_rates, key_starts: starts(10, 58) })).toMatch(
      /until 2026-05-04T12:00:05.000Z: its 1 start per 15 s is used up$/,
    );
    expect(why({ key_rates, key_starts: starts(10, 20) })).toMatch(
      /until 2026-05-04T12:00:40.000Z: its 2 starts per 60 s are used up$/,
    );
  });

  it("for one period after its owner took it over", () => {
    expect(why({ key_rates: [PER_MINUTE], owned_since: ago(30) })).toBe(
      'key "key" is rate limited until 2026-05-04T12:00:30.000Z: its worker has just taken it over',
    );
  });

  it("perhaps for starts that only its owner knows of", () => {
    expect(why({ key_rates: [PER_MINUTE], key_starts: starts(10) })).toBe(
      `${NEXT} and the rate of its key allows it`,
    );
  });
});
