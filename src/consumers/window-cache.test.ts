import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { eventAt, eventsAt } from "../../test/support/persisted-event.ts";
import { type Chunk, WindowCache, windowOf } from "./window-cache.ts";

const ROOMY = 1_000_000;

/** All events of a log of these positions above `from` up to `to`. */
function chunk(from: number, to: number, ...positions: number[]): Chunk {
  return { from: BigInt(from), to: BigInt(to), events: eventsAt(...positions) };
}

function taken(cache: WindowCache, after: number, countMax = 100) {
  const window = cache.take(BigInt(after), countMax);
  if (window === undefined) return undefined;
  return { target: Number(window.target), at: window.events.map((one) => Number(one.position)) };
}

describe("WindowCache", () => {
  it("knows nothing at first", () => {
    const cache = new WindowCache(ROOMY);
    expect(cache.has(0n)).toBe(false);
    expect(taken(cache, 0)).toBeUndefined();
  });

  it("gives what was added, up to where it is complete", () => {
    const cache = new WindowCache(ROOMY);
    cache.add(chunk(0, 5, 1, 3));
    expect(taken(cache, 0)).toEqual({ target: 5, at: [1, 3] });
  });

  it("gives the rest to a consumer that stands inside a piece", () => {
    const cache = new WindowCache(ROOMY);
    cache.add(chunk(0, 5, 1, 3, 4));
    expect(taken(cache, 1)).toEqual({ target: 5, at: [3, 4] });
    expect(taken(cache, 4)).toEqual({ target: 5, at: [] });
    expect(taken(cache, 5)).toBeUndefined();
  });

  it("joins pieces that touch, and stops where one is missing", () => {
    const cache = new WindowCache(ROOMY);
    cache.add(chunk(0, 5, 1));
    cache.add(chunk(9, 12, 10));
    cache.add(chunk(5, 7, 6));
    expect(taken(cache, 0)).toEqual({ target: 7, at: [1, 6] });
    expect(taken(cache, 9)).toEqual({ target: 12, at: [10] });
  });

  it("ends a batch that is cut at its last event, not at the end of the piece", () => {
    const cache = new WindowCache(ROOMY);
    cache.add(chunk(0, 9, 1, 3, 5, 7));
    expect(taken(cache, 0, 2)).toEqual({ target: 3, at: [1, 3] });
    expect(taken(cache, 3, 2)).toEqual({ target: 9, at: [5, 7] });
  });

  it("ignores a piece without extent", () => {
    const cache = new WindowCache(ROOMY);
    cache.add(chunk(5, 5));
    expect(cache.has(4n)).toBe(false);
    expect(cache.has(5n)).toBe(false);
  });

  it("forgets everything when cleared", () => {
    const cache = new WindowCache(ROOMY);
    cache.add(chunk(0, 5, 1));
    cache.clear();
    expect(cache.has(0n)).toBe(false);
  });

  it("keeps the part of a piece that is not known yet", () => {
    const cache = new WindowCache(ROOMY);
    cache.add(chunk(5, 9, 6, 8));
    cache.add(chunk(0, 12, 1, 6, 8, 11)); // A consumer that catches up reads into what is there.
    expect(taken(cache, 0)?.at.slice(0, 3)).toEqual([1, 6, 8]);
    cache.add(chunk(7, 12, 8, 11));
    expect(taken(cache, 0)).toEqual({ target: 12, at: [1, 6, 8, 11] });
  });

  it("stays within its bound", () => {
    const cache = new WindowCache(10_000);
    for (let at = 0; at < 100; at += 1) {
      cache.add({ from: BigInt(at), to: BigInt(at + 1), events: [eventAt(at + 1, "1", 500)] });
    }
    const present = Array.from({ length: 100 }, (_, at) => cache.has(BigInt(at)));
    expect(present.filter(Boolean).length).toBeLessThan(10);
    expect(present.at(-1)).toBe(true);
  });

  it("keeps a piece that alone is over the bound, or its reader could never go on", () => {
    const cache = new WindowCache(100);
    cache.add({ from: 0n, to: 1n, events: [eventAt(1, "1", 5_000)] });
    expect(taken(cache, 0)).toEqual({ target: 1, at: [1] });
  });

  it("keeps what a consumer far behind just read, though the rest of the log fills it", () => {
    const cache = new WindowCache(10_000);
    for (let at = 100; at < 200; at += 1) {
      cache.add({ from: BigInt(at), to: BigInt(at + 1), events: [eventAt(at + 1, "1", 500)] });
    }
    cache.add(chunk(0, 50, 1, 2, 3));
    expect(taken(cache, 0)).toEqual({ target: 50, at: [1, 2, 3] });
  });

  it("drops what a consumer far behind has passed before what the others need", () => {
    const cache = new WindowCache(20_000);
    const piece = (at: number) => ({
      from: BigInt(at),
      to: BigInt(at + 1),
      events: [eventAt(at + 1, "1", 500)],
    });
    for (let at = 1_000; at < 1_200; at += 1) cache.add(piece(at));
    for (let behind = 0; behind < 200; behind += 1) {
      cache.add(piece(behind));
      expect(cache.has(BigInt(behind))).toBe(true);
      expect(cache.take(1_199n, 10)?.target).toBe(1_200n);
    }
  });

  it("forgets what lies below every consumer, and nothing above", () => {
    const cache = new WindowCache(ROOMY);
    cache.add(chunk(0, 5, 1));
    cache.add(chunk(5, 9, 6));
    cache.dropBelow(5n);
    expect(cache.has(0n)).toBe(false);
    expect(taken(cache, 5)).toEqual({ target: 9, at: [6] });
  });

  it("keeps its bound, and what is above, after forgetting what is below", () => {
    const cache = new WindowCache(10_000);
    const piece = (at: number) => ({
      from: BigInt(at),
      to: BigInt(at + 1),
      events: [eventAt(at + 1, "1", 500)],
    });
    for (let at = 0; at < 200; at += 1) {
      cache.add(piece(at));
      cache.dropBelow(BigInt(at - 3));
      expect(cache.has(BigInt(at))).toBe(true);
      expect(cache.has(BigInt(at - 5))).toBe(false);
    }
    for (let at = 500; at < 520; at += 1) cache.add(piece(at));
    expect(cache.has(519n)).toBe(true);
    expect(cache.has(199n)).toBe(false);
  });

  it("says where a piece ends", () => {
    const cache = new WindowCache(ROOMY);
    cache.add(chunk(0, 5, 1));
    expect(cache.endOf(3n)).toBe(5n);
    expect(cache.endOf(5n)).toBeUndefined();
  });

  it("answers truthfully for any pieces of any log, and never loses the one just read", () => {
    const pieces = fc.array(fc.tuple(fc.nat(40), fc.integer({ min: 1, max: 15 })), {
      maxLength: 30,
    });
    const log = fc.uniqueArray(fc.integer({ min: 1, max: 60 }), { maxLength: 60 });
    const property = fc.property(pieces, log, fc.integer({ min: 1, max: 9 }), (reads, at, max) => {
      const positions = at.toSorted((a, b) => a - b);
      const between = (after: number, to: number): number[] =>
        positions.filter((position) => position > after && position <= to);
      const cache = new WindowCache(3_000);
      for (const [from, length] of reads) {
        cache.add(chunk(from, from + length, ...between(from, from + length)));
        const window = taken(cache, from, max);
        if (window === undefined) throw new Error(`nothing at ${from} right after it was added`);
        expect(window.target).toBeGreaterThan(from);
        expect(window.at).toEqual(between(from, window.target));
        expect(window.at.length).toBeLessThanOrEqual(max);
      }
    });
    fc.assert(property, { numRuns: 500 });
  });
});

describe("windowOf", () => {
  it("is the whole piece when it fits", () => {
    const piece = chunk(3, 9, 4, 6);
    expect(windowOf(piece, 2)).toEqual({ after: 3n, target: 9n, events: piece.events });
  });

  it("ends at its last event when it is cut", () => {
    const piece = chunk(3, 9, 4, 6, 8);
    const events = piece.events.slice(0, 2);
    expect(windowOf(piece, 2)).toEqual({ after: 3n, target: 6n, events });
  });
});
