import { describe, expect, it } from "vitest";
import { HELD_MAX, KeyLaneBook } from "./key-lanes.ts";
import type { HeldKey, KeyLaneView } from "./sql/key-lanes.ts";

const LANE = -7;
const HELD: HeldKey = { tenant: "default", key: "held" };

function bookOf(): KeyLaneBook {
  const book = new KeyLaneBook(() => LANE);
  book.open(LANE);
  return book;
}

const view = (more: Partial<KeyLaneView>): { lanes: KeyLaneView[] } => ({
  lanes: [{ lane: LANE, order: 10, freeOrder: null, passed: undefined, ...more }],
});

const passed = (...held: HeldKey[]) => ({ lastOrder: 9_000, held });

describe("the lane of a bucket", () => {
  it("begins behind the tasks of held keys, which it names", () => {
    const book = bookOf();
    book.saw(view({ freeOrder: 5_000, passed: passed(HELD) }), book.asks([]), 9_000);
    expect(book.starts([LANE], [])).toEqual([{ lane: LANE, floor: 9, start: 4_999, held: [HELD] }]);
  });

  it("begins behind nothing that is not settled", () => {
    const book = bookOf();
    book.saw(view({ passed: passed(HELD) }), book.asks([]), 3_000);
    expect(book.starts([LANE], [])).toMatchObject([{ floor: 9, start: 3_000 }]);
  });

  it("remembers nothing for a short way, or for more keys than can be named", () => {
    const book = bookOf();
    book.saw(view({ freeOrder: 20, passed: passed(HELD) }), book.asks([]), 9_000);
    expect(book.starts([LANE], [])).toMatchObject([{ floor: 9, start: 9, held: [] }]);
    const many = Array.from({ length: HELD_MAX }, (_, n) => ({ ...HELD, key: `held:${n}` }));
    book.saw(view({ freeOrder: 5_000, passed: passed(...many) }), book.asks([]), 9_000);
    expect(book.starts([LANE], [])).toMatchObject([{ floor: 9, start: 9, held: [] }]);
  });

  it("begins at its floor as soon as a key that was full is not", () => {
    const book = bookOf();
    book.saw(view({ freeOrder: 5_000, passed: passed() }), book.asks(["hot"]), 9_000);
    expect(book.starts([LANE], ["hot"])).toMatchObject([{ floor: 9, start: 4_999 }]);
    expect(book.starts([LANE], [])).toMatchObject([{ floor: 9, start: 9 }]);
  });

  it("is worth asking again when a key was full and is not any more", () => {
    const book = bookOf();
    book.markEmpty([LANE], book.asks(["hot"]));
    expect(book.busy(["hot"])).toEqual([]);
    expect(book.busy([])).toEqual([LANE]);
    book.markEmpty([LANE], book.asks([]));
    expect(book.busy([])).toEqual([]);
  });

  it("begins behind what a claim took, and never behind what is not settled", () => {
    const book = bookOf();
    book.took(LANE, 5_000, book.asks([]), 9_000);
    expect(book.starts([LANE], [])).toMatchObject([{ floor: 5_000, start: 5_000 }]);
    book.took(LANE, 8_000, book.asks([]), 6_000);
    expect(book.starts([LANE], [])).toMatchObject([{ floor: 6_000, start: 6_000 }]);
    book.took(LANE, 5_500, book.asks([]), 9_000);
    expect(book.starts([LANE], [])).toMatchObject([{ floor: 6_000, start: 6_000 }]);
  });

  it("heeds nothing that was asked before it was lowered", () => {
    const book = bookOf();
    const asked = book.asks([]);
    book.lower(LANE);
    book.took(LANE, 5_000, asked, 9_000);
    book.saw(view({ order: 5_000, freeOrder: 5_000 }), asked, 9_000);
    book.markEmpty([LANE], asked);
    expect(book.starts([LANE], [])).toEqual([{ lane: LANE, floor: 0, start: 0, held: [] }]);
    expect(book.busy([])).toEqual([LANE]);
  });
});
