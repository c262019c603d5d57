import { describe, expect, it } from "vitest";
import { ManualClock } from "../../../test/support/manual-clock.ts";
import { FeedClient } from "./client.ts";
import { FeedRow, type StoredRow } from "./feed-row.ts";
import type { FeedFilter } from "./filter.ts";
import { BOUNDS_MS } from "./histogram.ts";
import { CHANGES_MAX, Summary } from "./summary.ts";
import { TaskTimes } from "./task-times.ts";

let position = 0;
const at = (ms: number): Date => new Date(ms);

function row(state: string, ids: readonly number[], given: Partial<StoredRow> = {}): FeedRow {
  position += 1;
  return new FeedRow("era", {
    position: String(position),
    at: at(0),
    kind: "task",
    tenant: "acme",
    queue: "mails",
    state,
    attempt: 0,
    worker_id: null,
    reason: null,
    first_id: String(ids[0]),
    last_id: String(ids.at(-1)),
    ids: ids.join(","),
    data: null,
    ...given,
  });
}

interface Data {
  readonly counts: readonly { queue: string | null; state: string; count: number }[];
  readonly retries: number;
  readonly isComplete: boolean;
  readonly changes: readonly { readonly id: string }[];
  readonly waitMs?: readonly number[];
  readonly runMs?: readonly number[];
}

function taken(summary: Summary): Data {
  const data = JSON.parse(summary.text()) as Data;
  summary.clear();
  return data;
}

describe("a summary", () => {
  it("counts by queue and state, and tells a few changes one by one", () => {
    const summary = new Summary();
    summary.add(row("pending", [1, 2]), 0, undefined);
    summary.add(row("pending", [3], { queue: "letters" }), 0, undefined);
    summary.add(row("pending", [4], { attempt: 1 }), 0, undefined);
    const data = taken(summary);
    expect(data.counts).toEqual([
      { queue: "mails", state: "pending", count: 3 },
      { queue: "letters", state: "pending", count: 1 },
    ]);
    expect(data).toMatchObject({ retries: 1, isComplete: true });
    expect(data.changes.map(({ id }) => id)).toEqual(["1", "2", "3", "4"]);
    expect(summary.isEmpty).toBe(true);
  });

  it("does not grow with the number of changes, and says that it left some out", () => {
    const summary = new Summary();
    const many = Array.from({ length: CHANGES_MAX }, (_, index) => index + 1);
    summary.add(row("completed", many), 0, undefined);
    summary.add(row("completed", [9_999]), 0, undefined);
    summary.add(row("completed", [10_000]), 0, undefined);
    const data = taken(summary);
    expect(data).toMatchObject({ isComplete: false, changes: [] });
    expect(data.counts).toEqual([{ queue: "mails", state: "completed", count: CHANGES_MAX + 2 }]);
    summary.add(row("completed", [1]), 0, undefined);
    expect(taken(summary).isComplete).toBe(true);
  });

  it("does not grow with the number of queues", () => {
    const summary = new Summary();
    for (let index = 0; index < 3_000; index += 1) {
      summary.add(row("pending", [index + 1], { queue: `q${index}` }), 0, undefined);
    }
    const { counts } = taken(summary);
    expect(counts).toHaveLength(1_001);
    expect(counts.at(-1)).toEqual({ queue: null, state: "pending", count: 2_000 });
  });

  it("leaves out what somebody has seen of a row", () => {
    const summary = new Summary();
    summary.add(row("pending", [1, 2, 3]), 2, undefined);
    expect(taken(summary).changes.map(({ id }) => id)).toEqual(["3"]);
  });
});

describe("a client that reads summaries", () => {
  const CLUSTER = { kind: "worker", tenant: null, queue: null, state: null } as const;

  const open = (filter: Partial<FeedFilter> = {}, charsMax = 100_000): FeedClient => {
    const client = new FeedClient({
      filter: { tenant: "acme", queues: "all", withCluster: true, ...filter },
      after: undefined,
      charsMax,
      view: "summary",
      catchUp: () => Promise.resolve(),
      onLagged: () => {},
      encode: (text) => new TextEncoder().encode(text),
      onClosed: () => {},
      clock: new ManualClock(),
      goodbyeMs: 5_000,
    });
    client.begin({ era: "era", position: 0n }, "live", false);
    return client;
  };

  const told = async (client: FeedClient): Promise<string[]> => {
    client.end();
    const text = await new Response(client.stream).text();
    return Array.from(text.matchAll(/^event: (\w+)$/gm), ([, event = ""]) => event);
  };

  it("is told of tasks before of what came after them, so that no id leaves them out", async () => {
    const client = open();
    client.give("era", row("pending", [1]));
    client.give("era", row("", [1], { ...CLUSTER, data: '{"id": "w"}' }));
    expect(await told(client)).toEqual(["ready", "summary", "worker"]);
  });

  it("is told later when it has not read, and not less", async () => {
    const client = open();
    client.give("era", row("pending", [1]));
    client.sumUp(); // The beginning was not taken yet.
    client.give("era", row("pending", [2]));
    const reader = client.stream.getReader();
    await reader.read();
    client.sumUp();
    const { value } = await reader.read();
    const text = new TextDecoder().decode(value);
    expect(text).toContain('"count":2');
    expect(text).toContain(`id: era-${position}\n`);
  });

  it("is told of tasks whose summary had no room before it is told that it lagged", async () => {
    const client = open({}, 150);
    client.give("era", row("pending", [1])); // The beginning was not taken yet.
    client.give("era", row("", [1], { ...CLUSTER, data: '{"id": "w"}' }));
    client.give("era", row("pending", [2]));
    client.end();
    const text = await new Response(client.stream).text();
    const events = Array.from(text.matchAll(/^event: (\w+)$/gm), ([, event]) => event);
    expect(events).toEqual(["ready", "summary", "lagged"]);
    expect(text).toContain('"count":2');
    expect(text).toContain('"missed":1');
    // Where the lost one can be fetched from.
    expect(text).toContain(`"after":"era-${position - 2}"`);
  });

  it("is told what of it was missed, and is no news", async () => {
    const client = open();
    client.phase = "behind";
    client.give("era", row("pending", [1]));
    client.phase = "live";
    const reader = client.stream.getReader();
    const next = async (): Promise<string> => {
      client.sumUp();
      return new TextDecoder().decode((await reader.read()).value);
    };
    await reader.read();
    expect(await next()).toContain('"isReplay":true');
    client.give("era", row("pending", [2]));
    expect(await next()).not.toContain("isReplay");
  });

  it("is told nothing of others, nor of queues that it is not for", async () => {
    const client = open({ queues: new Set(["mails"]), withCluster: false });
    client.give("era", row("pending", [1], { tenant: "globex" }));
    client.give("era", row("pending", [2], { queue: "letters" }));
    client.give("era", row("", [1], { ...CLUSTER, data: "{}" }));
    const reader = client.stream.getReader();
    await reader.read();
    client.sumUp();
    client.end();
    expect((await reader.read()).done).toBe(true);
  });
});

describe("times of tasks", () => {
  it("tell how long each waited and ran", () => {
    const times = new TaskTimes();
    expect(times.note(row("pending", [1, 2], { at: at(100) }))).toEqual({ waitMs: [], runMs: [] });
    expect(times.note(row("running", [1], { at: at(140) })).waitMs).toEqual([40]);
    expect(times.note(row("running", [2], { at: at(150) })).waitMs).toEqual([50]);
    expect(times.note(row("completed", [1, 2], { at: at(200) })).runMs).toEqual([60, 50]);
    expect(times.note(row("completed", [7], { at: at(200) })).runMs).toEqual([]);
  });

  it("remember so many tasks at most", () => {
    const times = new TaskTimes(2);
    times.note(row("running", [1, 2, 3], { at: at(0) }));
    expect(times.note(row("completed", [1, 2, 3], { at: at(5) })).runMs).toEqual([5, 5]);
  });

  it("are told in classes that can be added", () => {
    const summary = new Summary();
    summary.add(row("completed", [1]), 0, { waitMs: [0], runMs: [7, 10, 999_999] });
    const { waitMs, runMs } = taken(summary);
    expect(waitMs?.[0]).toBe(1);
    expect(runMs?.[BOUNDS_MS.indexOf(10)]).toBe(2);
    expect(runMs?.[BOUNDS_MS.length]).toBe(1);
  });
});
