import { describe, expect, it } from "vitest";
import { completed, failed, queue, type Tidemill } from "../../../src/index.ts";
import type { ListTasksOptions } from "../../../src/tasks/task-admin.ts";
import { testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { BRISK, gate } from "./scene.ts";

const idsOf = (rows: readonly { readonly id: string }[]): string[] => rows.map(({ id }) => id);

/** All pages, each having looked at no more than a few rows of each table. */
async function readPages(
  mill: Tidemill,
  filter: Pick<ListTasksOptions, "partitionKey" | "state" | "queue">,
  { limit, look }: { readonly limit: number; readonly look: number },
): Promise<string[]> {
  const found: string[] = [];
  let before: string | undefined;
  for (let pages = 0; pages < 100; pages += 1) {
    const place = before === undefined ? {} : { before };
    const { rows, lookedTo } = await mill.tasks.findPage({ ...filter, ...place, limit }, look);
    found.push(...idsOf(rows));
    if (lookedTo === undefined) return found;
    before = lookedTo;
  }
  throw new Error("it never ends");
}

describe("a list of tasks", () => {
  it("has the newest first, also where numbers grow longer", async () => {
    const { mill, ids } = await stored(12);
    const newest = ids.toReversed();
    expect(idsOf(await mill.tasks.list({ limit: 5 }))).toEqual(newest.slice(0, 5));
    const next = await mill.tasks.list({ limit: 5, before: newest[4] ?? "" });
    expect(idsOf(next)).toEqual(newest.slice(5, 10));
  });

  it("finds what is rare by looking further and further back, each task once", async () => {
    const { mill } = await stored(0);
    const opened = gate();
    const mixed = queue<number>("mixed", { maxAttempts: 1 });
    await mill.startWorker({
      ...BRISK,
      handlers: [
        mixed.handle(async ({ payload }) => {
          if (payload % 4 === 0) return failed("no", { retry: false });
          if (payload % 4 === 1) return failed("again");
          if (payload === 2) await opened.opened;
          return completed();
        }),
      ],
    });
    const all: string[] = [];
    for (let payload = 0; payload < 24; payload += 1) {
      const key = payload % 6 === 0 ? { partitionKey: "rare" } : {};
      all.push((await mill.enqueue(mixed, payload, key)).id);
    }
    const later = new Date(Date.now() + 3_600_000);
    all.push((await mill.enqueue(mixed, 99, { runAt: later })).id);
    await eventually(async () => {
      expect(await mill.tasks.list({ state: "completed" })).toHaveLength(11);
    });
    const small = { limit: 3, look: 4 };
    expect(await readPages(mill, {}, small)).toEqual(all.toReversed());
    const rare = [0, 6, 12, 18].map((at) => all[at]).toReversed();
    expect(await readPages(mill, { partitionKey: "rare" }, small)).toEqual(rare);
    const refused = [0, 4, 8, 12, 16, 20].map((at) => all[at]).toReversed();
    expect(await readPages(mill, { state: "failed" }, small)).toEqual(refused);
    const dead = [1, 5, 9, 13, 17, 21].map((at) => all[at]).toReversed();
    expect(await readPages(mill, { state: "dead" }, small)).toEqual(dead);
    expect(await readPages(mill, { state: "running" }, small)).toEqual([all[2]]);
    expect(await readPages(mill, { state: "scheduled" }, small)).toEqual(all.slice(-1));
    expect(await readPages(mill, { state: "cancelled" }, small)).toEqual([]);
    opened.open();
    await eventually(async () => {
      expect(await mill.tasks.list({ state: "running" })).toEqual([]);
    });
  });
});

it("passes nothing over because packs below it fill the page", async () => {
  const { mill } = await stored(0);
  await mill.queues.ensure("other");
  const many = Array.from({ length: 40 }, (_, payload) => ({ payload }));
  const packed = (await mill.enqueueMany("some", many)).map(({ id }) => id);
  const single: string[] = [];
  for (let at = 0; at < 3; at += 1) single.push((await mill.enqueue("some", at)).id);
  for (let at = 0; at < 10; at += 1) await mill.enqueue("other", at);
  const found = await readPages(mill, { queue: "some" }, { limit: 3, look: 4 });
  expect(found).toEqual([...packed, ...single].toReversed());
});

async function stored(count: number): Promise<{ mill: Tidemill; ids: string[] }> {
  const database = await testDatabase();
  const mill = await database.connect();
  await mill.queues.ensure("some");
  const ids: string[] = [];
  for (let at = 0; at < count; at += 1) ids.push((await mill.enqueue("some", at)).id);
  return { mill, ids };
}

describe("the load of a ring", () => {
  it("is told by bucket and by key, of what waits, runs and ended", async () => {
    const { mill } = await stored(0);
    const opened = gate();
    const keyed = queue<number>("keyed");
    await mill.startWorker({
      ...BRISK,
      handlers: [
        keyed.handle(async ({ payload }) => {
          if (payload > 0) await opened.opened;
          return completed();
        }),
      ],
    });
    const hot = { partitionKey: "hot" };
    await (await mill.enqueue(keyed, 0, hot)).result();
    for (const payload of [1, 2, 3]) await mill.enqueue(keyed, payload, hot);
    await mill.enqueue(keyed, 0, { partitionKey: "mild" }).then((task) => task.result());
    await eventually(async () => {
      const { keys, buckets } = await mill.queues.ringLoad("keyed");
      expect(keys[0]).toMatchObject({ key: "hot", ended: 1 });
      expect((keys[0]?.waiting ?? 0) + (keys[0]?.running ?? 0)).toBe(3);
      expect(keys[0]?.running).toBeGreaterThan(0);
      expect(keys[1]).toMatchObject({ key: "mild", waiting: 0, running: 0, ended: 1 });
      const { key: _key, ...load } = keys[0] ?? {};
      expect(buckets).toContainEqual({ ...load, isCut: false });
    });
    await mill.enqueueMany(
      keyed,
      Array.from({ length: 150 }, (_, payload) => ({ payload: payload + 1, ...hot })),
    );
    const { buckets, looked } = await mill.queues.ringLoad("keyed");
    expect(looked.perBucket).toBe(100);
    expect(buckets.filter(({ isCut }) => isCut)).toHaveLength(1);
    await expect(mill.queues.ringLoad("nothing")).rejects.toThrow('no key space "nothing"');
    opened.open();
  });
});
