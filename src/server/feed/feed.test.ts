import { describe, expect, it } from "vitest";
import { FeedRow, type StoredRow } from "./feed-row.ts";
import { textFor } from "./filter.ts";
import { Outbox } from "./outbox.ts";
import { readPlace, writePlace } from "./place.ts";
import { RecentRows } from "./recent-rows.ts";

const ERA = "0123456789ab";

const stored = (more: Partial<StoredRow> = {}): StoredRow => ({
  position: "7",
  at: new Date(0),
  kind: "task",
  tenant: "acme",
  queue: "mails",
  state: "running",
  attempt: 1,
  worker_id: null,
  reason: null,
  first_id: "11",
  last_id: "13",
  ids: null,
  data: null,
  ...more,
});

const row = (more?: Partial<StoredRow>): FeedRow => new FeedRow(ERA, stored(more));
const ids = (text: string): string[] =>
  Array.from(text.matchAll(/"id":"(\d+)"/g), ([, id]) => id ?? "");

describe("a place", () => {
  it.each([
    { era: ERA, position: 0n },
    { era: ERA, position: 123456789012345678n, index: 1 },
  ])("is read as it was written", (place) => {
    expect(readPlace(writePlace(place))).toEqual(place);
  });

  it.each(["", "7", `${ERA}-`, `${ERA}-7-`, `${ERA}-7-0`, `${ERA}--7`, `X${ERA}-7`, ` ${ERA}-7`])(
    "is not %j",
    (text) => expect(readPlace(text)).toBeUndefined(),
  );
});

describe("a row", () => {
  it("tells of all numbers from the first to the last", () => {
    expect(ids(row().textAfter(0))).toEqual(["11", "12", "13"]);
    expect(row().textAfter(0)).toContain(`id: ${ERA}-7-3\nevent: task\ndata: {"id":"13"`);
  });

  it("tells of the ids it lists, behind those that were seen", () => {
    const listed = row({ ids: "11,40,13", last_id: "40" });
    expect(listed.count).toBe(3);
    expect(ids(listed.textAfter(1))).toEqual(["40", "13"]);
    expect(ids(listed.textAfter(3))).toEqual([]);
  });

  it.each([
    ["11", 0, ["11"]],
    ["13", 2, ["13"]],
    ["13", 3, []],
    ["14", 0, []],
    ["10", 0, []],
  ])("tells of task %s, behind %i, %j", (id, skipped, expected) => {
    expect(ids(row().textOf(id, skipped))).toEqual(expected);
    expect(ids(row({ ids: "11,12,13" }).textOf(id, skipped))).toEqual(expected);
  });

  it("keeps a reason with every kind of character in one line", () => {
    const reason = 'a\nb\r"c"\u2028 data: x';
    const text = row({ reason }).textAfter(2);
    expect(text.split("\n")).toHaveLength(5);
    const [, data = ""] = /\ndata: ([^\n]*)/.exec(text) ?? [];
    expect((JSON.parse(data) as { reason: string }).reason).toBe(reason);
  });
});

describe("a filter", () => {
  const all = { tenant: "acme", queues: "all", withCluster: false } as const;
  const cluster = { kind: "worker", tenant: null, first_id: null, data: '{"id": "w"}' } as const;

  it.each([
    ["the tenant", all, {}, true],
    ["another tenant", { ...all, tenant: "globex" }, {}, false],
    [
      "another tenant with the rights of an admin",
      { ...all, tenant: "g", withCluster: true },
      {},
      false,
    ],
    ["a queue", { ...all, queues: new Set(["mails"]) }, {}, true],
    ["another queue", { ...all, queues: new Set(["letters"]) }, {}, false],
    ["a state", { ...all, states: new Set(["running"]) }, {}, true],
    ["another state", { ...all, states: new Set(["dead"]) }, {}, false],
    ["the cluster, to a tenant", all, cluster, false],
    ["the cluster, to an admin", { ...all, withCluster: true }, cluster, true],
  ])("of %s", (_, filter, more, isTold) => {
    expect(textFor(filter, row(more)) !== "").toBe(isTold);
  });
});

describe("an act", () => {
  const acted = (more: object): FeedRow => {
    const data = { tenant: "acme", act: "schedule.change", call: "POST /v1/schedules/:name/pause" };
    const told = { ...data, id: "5", target: { name: "mails" }, subject: "ann", reason: "why" };
    return row({ kind: "act", tenant: null, data: JSON.stringify({ ...told, ...more }) });
  };
  const queue = { act: "queue.change", call: "POST /v1/queues/:name/pause" };
  const reader = { tenant: "acme", queues: "all", withCluster: false, withActs: true } as const;
  const mailer = { ...reader, queues: new Set(["mails"]) };
  const letters = { ...reader, queues: new Set(["letters"]) };

  it.each([
    ["of the tenant", reader, {}, true],
    ["of the tenant, beside tasks of a filter", { ...reader, withActs: false }, {}, false],
    ["of another tenant", { ...reader, tenant: "globex" }, {}, false],
    ["on the cluster", reader, { act: "cluster.change" }, false],
    ["of somebody else on a queue", { ...mailer, tenant: "globex" }, queue, true],
    ["on a queue that it may not see", letters, queue, false],
    ["of another tenant on a topic", { ...reader, tenant: "g" }, { act: "queue.change" }, false],
  ])("%s", (_, filter, more, isTold) => {
    expect(textFor(filter, acted(more)) !== "").toBe(isTold);
  });

  it("is told without who did what and why, but to admins", () => {
    const brief = textFor(reader, acted({}));
    expect(brief).toBe(
      `id: ${ERA}-7-1\nevent: act\n` +
        'data: {"act":"schedule.change","at":"1970-01-01T00:00:00.000Z"}\n\n',
    );
    expect(textFor(reader, acted({}), 1)).toBe("");
    expect(textFor({ ...reader, withCluster: true }, acted({}))).toContain('"subject":"ann"');
  });
});

describe("an outbox", () => {
  it("keeps what has room, and counts the rest until it is forgiven", () => {
    const outbox = new Outbox(10);
    expect(outbox.add("x".repeat(50), 1)).toBe(true); // Alone, whatever its size.
    expect(outbox.add("y", 1)).toBe(false);
    expect(outbox.take(1)).toHaveLength(50);
    expect(outbox.add("z", 2)).toBe(false); // Not behind something that was lost.
    expect(outbox.forgive()).toBe(3);
    expect(outbox.add("12345", 1)).toBe(true);
    expect(outbox.add("67890", 1)).toBe(true);
    expect(outbox.add("!", 1)).toBe(false);
    expect(outbox.take(5)).toBe("12345");
    expect(outbox.take(100)).toBe("67890");
    expect([outbox.isEmpty, outbox.chars, outbox.take(5)]).toEqual([true, 0, ""]);
  });
});

it("an outbox gives a long text in pieces of whole messages", () => {
  const outbox = new Outbox(1_000);
  const messages = ["a: 1\n\n", "b: 22\n\n", "c: \u{1f41f}\u{1f41f}\n\n", "d: 4\n\n"];
  outbox.put(messages.join(""));
  outbox.put("e: 5\n\n");
  const pieces = [outbox.take(13), outbox.take(3), outbox.take(100), outbox.take(100)];
  expect(pieces).toEqual([
    `${messages[0]}${messages[1]}`,
    messages[2],
    `${messages[3]}e: 5\n\n`,
    "",
  ]);
  expect([outbox.isEmpty, outbox.chars]).toEqual([true, 0]);
});

describe("recent rows", () => {
  it("are few when they are long", () => {
    const long = (position: string): FeedRow => row({ position, reason: "x".repeat(1_000) });
    const recent = new RecentRows(1_000, 8_000);
    recent.clear(0n);
    for (const position of ["1", "2", "3"]) recent.add(long(position));
    expect(long("1").chars).toBeGreaterThan(3_000);
    expect(recent.after(1n, 3n)).toBeUndefined();
    expect(recent.after(2n, 3n)?.rows).toHaveLength(1);
  });

  const at = (position: number): FeedRow => row({ position: String(position) });

  it("are given from where somebody is, and not when some are gone", () => {
    const recent = new RecentRows(12, 1e6);
    recent.clear(1n);
    for (const position of [3, 4, 8]) recent.add(at(position));
    const behind = (cursor: bigint) => {
      const page = recent.after(cursor, 9n);
      return page && [page.rows.map(({ position }) => Number(position)), Number(page.to)];
    };
    expect(behind(0n)).toBeUndefined();
    expect(behind(1n)).toEqual([[3, 4, 8], 9]);
    expect(behind(4n)).toEqual([[8], 9]);
    expect(behind(8n)).toEqual([[], 9]);
    for (const position of [10, 11]) recent.add(at(position)); // 15 changes: half of 12 stay.
    expect(behind(3n)).toBeUndefined();
    expect(recent.after(8n, 11n)?.rows).toHaveLength(2);
  });
});
