import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { ManualClock, settle } from "../../../test/support/manual-clock.ts";
import { silentLogger } from "../../base/log.ts";
import type { Database } from "../../db/database.ts";
import type { FeedClient } from "./client.ts";
import { Feed } from "./feed.ts";
import { FeedRow } from "./feed-row.ts";
import type { FeedHub } from "./hub.ts";

const ERA = "0123456789ab";
const FILTER = { tenant: "acme", queues: "all", withCluster: true } as const;
const LIMITS = { clientsMax: 100, tenantClientsMax: 100 };

let clock: ManualClock;
let hub: FeedHub;
let over: AbortController;
let reads: number[];
/** How long a read takes. */
let costMs: number;
let position: bigint;

beforeEach(() => {
  clock = new ManualClock();
  reads = [];
  costMs = 0;
  position = 0n;
  over = new AbortController();
  const feed = new Feed({ names: { splices: {} } } as Database, {
    clock,
    logger: silentLogger,
    readStatus: async () => {
      reads.push(clock.now());
      if (costMs > 0) await new Promise<void>((wake) => clock.after(costMs, wake));
      return { read: reads.length };
    },
  });
  hub = feed.hub;
  hub.open(ERA, 0n);
  void feed.services.find(({ name }) => name === "feed status")?.run(over.signal);
});

afterEach(() => over.abort());

const come = (): FeedClient =>
  hub.subscribe({ filter: FILTER, after: undefined, view: "summary" }, LIMITS);

/** What a client was told until now, as it takes it. */
function listen(client: FeedClient): { readonly text: () => string } {
  let text = "";
  const reader = client.stream.pipeThrough(new TextDecoderStream()).getReader();
  const read = async (): Promise<void> => {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      text += value;
    }
  };
  void read();
  return { text: () => text };
}

const happen = (kind: "act" | "gap"): void => {
  position += 1n;
  const nothing = { tenant: null, queue: null, state: null, attempt: null, worker_id: null };
  const stored = { ...nothing, reason: null, first_id: null, last_id: null, ids: null };
  const row = { ...stored, position: `${position}`, at: new Date(0), kind, data: "{}" };
  hub.publish(new FeedRow(ERA, row));
};

async function pass(ms: number, stepMs: number, during: () => void = () => {}): Promise<void> {
  for (let passed = 0; passed < ms; passed += stepMs) {
    during();
    await settle();
    clock.advance(stepMs);
  }
  await settle();
}

/** How long it takes until what happens now was read. */
async function untilRead(): Promise<number> {
  const [from, before] = [clock.now(), reads.length];
  for (let turn = 0; turn < 600 && reads.length === before; turn += 1) await pass(10, 10);
  return (reads.at(-1) ?? Number.POSITIVE_INFINITY) - from;
}

describe("the state of the cluster", () => {
  it("is told at once to who comes, behind the first words, and read once for all", async () => {
    const first = listen(come());
    await settle();
    expect(first.text()).toMatch(/event: ready[^]*event: status\ndata: {"read":1}/);
    const second = listen(come());
    await settle();
    expect(second.text()).toContain('{"read":1}');
    expect(reads).toEqual([0]);
  });

  it("is told later to who had something else to read, and counts as told only then", async () => {
    const client = come();
    await settle();
    const { text } = listen(client);
    await settle();
    client.offer("id: 1\n\n", 1, { era: ERA, position: 1n });
    client.offer("id: 2\n\n", 1, { era: ERA, position: 1n });
    happen("gap");
    clock.advance(100);
    await pass(300, 50);
    expect(text()).toContain('{"read":2}');
    const slow = come();
    await settle();
    for (const read of [3, 4]) {
      clock.advance(2_000);
      await settle();
      expect(reads).toHaveLength(read);
    }
    const late = listen(slow); // It takes what it was told when it came, and then the latest.
    await pass(300, 50);
    expect(late.text().match(/"read":\d/g)).toEqual(['"read":2', '"read":4']);
  });

  it("is read soon after a change, and every two seconds without one", async () => {
    listen(come());
    await pass(10_000, 50);
    expect(reads).toHaveLength(6);
    happen("gap");
    expect(await untilRead()).toBeLessThanOrEqual(100);
  });

  it("takes a few per cent of the time, however much changes and however long a read", async () => {
    listen(come());
    for (costMs of [65, 150]) {
      await pass(20_000, 10, () => happen("gap"));
      reads = [];
      await pass(60_000, 20, () => happen("gap"));
      expect((reads.length * costMs) / 60_000).toBeLessThan(0.05);
      expect(reads.length).toBeGreaterThan(12); // Pages call nothing old meanwhile.
    }
  });

  it("is read soon after an act of somebody, however busy the cluster is", async () => {
    listen(come());
    costMs = 65;
    await pass(20_000, 10, () => happen("gap"));
    for (let turn = 0; turn < 4; turn += 1) {
      happen("act");
      expect(await untilRead()).toBeLessThanOrEqual(200);
    }
  });

  it("takes no more of the time when acts are made by a program", async () => {
    listen(come());
    costMs = 65;
    await pass(20_000, 10, () => happen("act"));
    reads = [];
    await pass(60_000, 20, () => happen("act"));
    expect((reads.length * costMs) / 60_000).toBeLessThan(0.1);
  });
});
