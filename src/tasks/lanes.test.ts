import { describe, expect, it } from "vitest";
import { LaneBook } from "./lanes.ts";
import type { LaneRequest, LaneView } from "./sql/claim.ts";

const ANY_ROOM = { ofQueue: () => Infinity, ofTenant: () => Infinity };

function bookOf(...lanes: Partial<LaneView>[]): LaneBook {
  const weightOf = (_: string, tenant: string): number => (tenant === "heavy" ? 3 : 1);
  const book = new LaneBook({ agingSeconds: 10, turn: 50, weightOf });
  see(book, ...lanes);
  return book;
}

function see(book: LaneBook, ...lanes: Partial<LaneView>[]): void {
  const views = lanes.map((lane) => ({
    lane: 1,
    queue: "orders",
    tenant: "a",
    priority: 5,
    headOrder: 1,
    waitedSeconds: 0,
    ...lane,
  }));
  book.saw(views, new Map(), 0, 0);
}

const wanted = (tasks: number) => ({ tasks, probation: 1 });
const takes = (requests: readonly LaneRequest[]): Record<number, number> =>
  Object.fromEntries(requests.map(({ lane, take }) => [lane, take]));

/** Asks for one task so many times: how many of each lane. */
function oneByOne(book: LaneBook, times: number): Map<number, number> {
  const counts = new Map<number, number>();
  for (let left = times; left > 0; left -= 1) {
    for (const { lane } of book.choose(wanted(1), ANY_ROOM)) {
      counts.set(lane, (counts.get(lane) ?? 0) + 1);
    }
  }
  return counts;
}

describe("the choice of lanes", () => {
  it("asks blindly for anything but what is on probation, which a look has to show", () => {
    const probation = { lane: 2, priority: -1 };
    const book = bookOf({ lane: 1, headOrder: null }, { ...probation, headOrder: null });
    expect(book.isDry).toBe(true);
    book.assumeWork();
    expect(book.isDry).toBe(false);
    expect(takes(book.choose(wanted(10), ANY_ROOM))).toEqual({ 1: 10 });
    book.markEmpty({ lane: 1, floor: 0 });
    expect(book.isDry).toBe(true);
    see(book, { ...probation, headOrder: 3 });
    expect(takes(book.choose(wanted(10), ANY_ROOM))).toEqual({ 2: 1 });
  });

  it("gives all to the only one that has work", () => {
    const book = bookOf({ lane: 1 }, { lane: 2, tenant: "b", headOrder: null });
    expect(takes(book.choose(wanted(1_000), ANY_ROOM))).toEqual({ 1: 1_000 });
  });

  it("asks for no more of low priority than have slots, and for high ones all the same", () => {
    const low = { lane: 1, waitedSeconds: 99 };
    const book = bookOf(low, { lane: 2, priority: 8 }, { lane: 3, tenant: "b", priority: 2 });
    const want = (tasks: number) => ({ ...wanted(10), below: { priority: 8, tasks } });
    expect(takes(book.choose(want(4), ANY_ROOM))).toEqual({ 1: 4, 2: 6 });
    expect(takes(book.choose(want(0), ANY_ROOM))).toEqual({ 2: 10 });
    book.markEmpty({ lane: 2, floor: 0 });
    expect(book.canChoose(want(0), ANY_ROOM)).toBe(false);
    expect(book.canChoose(want(1), ANY_ROOM)).toBe(true);
  });

  it("gives each tenant its turns", () => {
    const book = bookOf({ lane: 1, waitedSeconds: 99 }, { lane: 2, tenant: "b" });
    expect(takes(book.choose(wanted(120), ANY_ROOM))).toEqual({ 1: 70, 2: 50 });
    expect(takes(book.choose(wanted(130), ANY_ROOM))).toEqual({ 1: 80, 2: 50 });
  });

  it("takes turns one by one when there is room for one at a time, by weight", () => {
    const even = bookOf({ lane: 1 }, { lane: 2, tenant: "b" });
    expect(Object.fromEntries(oneByOne(even, 100))).toEqual({ 1: 50, 2: 50 });
    const uneven = bookOf({ lane: 1 }, { lane: 2, tenant: "heavy" });
    expect(Object.fromEntries(oneByOne(uneven, 100))).toEqual({ 1: 25, 2: 75 });
  });

  it("gives no credit to a tenant that was away", () => {
    const book = bookOf({ lane: 1 }, { lane: 2, tenant: "b" });
    oneByOne(book, 10);
    book.markEmpty({ lane: 2, floor: 0 });
    oneByOne(book, 1_000);
    see(book, { lane: 2, tenant: "b" });
    expect(oneByOne(book, 100).get(1)).toBe(50);
  });

  it("asks for no more of a tenant than there is room for", () => {
    const book = bookOf({ lane: 1 }, { lane: 2, tenant: "b" }, { lane: 3, priority: 7 });
    const ofTenant = (_: string, tenant: string): number => (tenant === "a" ? 20 : 0);
    expect(takes(book.choose(wanted(100), { ...ANY_ROOM, ofTenant }))).toEqual({ 3: 20 });
  });

  it("serves the queue first whose head ranks highest, while there is room for it", () => {
    const book = bookOf({ lane: 1 }, { lane: 2, queue: "mails", priority: 9 });
    const ofQueue = (queue: string): number => (queue === "mails" ? 30 : 100);
    const room = { ...ANY_ROOM, ofQueue };
    expect(takes(book.choose(wanted(50), room))).toEqual({ 2: 30, 1: 20 });
  });

  it("serves the lane of a tenant that ranks highest by priority and waiting", () => {
    const low = { lane: 1, priority: 0 };
    const high = { lane: 2, priority: 9 };
    expect(takes(bookOf(low, high).choose(wanted(10), ANY_ROOM))).toEqual({ 2: 10 });
    const aged = bookOf({ ...low, waitedSeconds: 91 }, high);
    expect(takes(aged.choose(wanted(10), ANY_ROOM))).toEqual({ 1: 10 });
  });

  it("takes what is on probation first, whatever its priority and however long others wait", () => {
    const waits = { lane: 2, tenant: "b", priority: 9, waitedSeconds: 1e6 };
    const book = bookOf({ lane: 1, priority: -1 }, waits);
    expect(book.choose(wanted(1), ANY_ROOM).map(({ lane }) => lane)).toEqual([1]);
  });

  it("takes no more on probation than is allowed", () => {
    const book = bookOf({ lane: 1, priority: -1 }, { lane: 2, tenant: "b" });
    expect(takes(book.choose(wanted(60), ANY_ROOM))).toEqual({ 1: 1, 2: 59 });
    const alone = bookOf({ lane: 1, priority: -1 });
    expect(alone.canChoose({ tasks: 1, probation: 0 }, ANY_ROOM)).toBe(false);
    expect(alone.choose({ tasks: 1, probation: 0 }, ANY_ROOM)).toEqual([]);
  });
});

describe("lanes that are lacked", () => {
  it("get a turn each, those that rank highest first", () => {
    const book = bookOf(
      { lane: 1 },
      { lane: 2, tenant: "b" },
      { lane: 3, tenant: "c", headOrder: null },
      { lane: 4, priority: 9 },
    );
    const lacking = book.lacking(({ lane }) => lane !== 1);
    expect(lacking.map(({ lane }) => lane)).toEqual([4, 2]);
    expect(takes(book.chooseOf(lacking, wanted(70), ANY_ROOM))).toEqual({ 4: 50, 2: 20 });
  });

  it("are the only ones that a glance asks for", () => {
    const book = bookOf({ lane: 1 }, { lane: 2, tenant: "b", headOrder: null });
    book.markEmpty({ lane: 1, floor: 0 });
    const floors = book.floors(({ lane }) => lane === 1);
    const view = { queue: "orders", priority: 5, headOrder: null, waitedSeconds: 0 };
    const lanes = [1, 2].map((lane) => ({ ...view, lane, tenant: lane === 1 ? "a" : "b" }));
    book.saw(lanes, floors, 0, 0);
    // What was passed over may have got work as well; what was seen has none.
    expect([book.hasMore(1), book.hasMore(2)]).toEqual([true, false]);
    expect(book.floors(() => false)).toEqual(new Map());
  });
});

describe("a lane from which a claim got too little", () => {
  it("has no more", () => {
    const book = bookOf({ headOrder: 10 });
    book.markEmpty(book.requestOf(1, 5));
    expect(book.hasMore(1)).toBe(false);
  });

  it("has more when a look found something before where the claim began", () => {
    const book = bookOf({ headOrder: 10 });
    book.passed(1, 20);
    const request = book.requestOf(1, 5);
    see(book, { headOrder: 3 });
    book.markEmpty(request);
    expect(book.hasMore(1)).toBe(true);
  });
});
