import { describe, expect, it } from "vitest";
import { PartitionBook } from "./partition-book.ts";
import type { FetchedBatch, KafkaMessage } from "./source.ts";

const message = (offset: number): KafkaMessage => ({
  offset: BigInt(offset),
  key: undefined,
  value: Buffer.from("x".repeat(10)),
  headers: [],
  timestampMs: undefined,
});

const batch = (fetched: number, offsets: readonly number[], next?: number): FetchedBatch => ({
  partition: 0,
  fetchedOffset: BigInt(fetched),
  nextOffset: BigInt(next ?? (offsets.at(-1) ?? fetched - 1) + 1),
  messages: offsets.map(message),
  endOffset: 100n,
});

const offsetsOf = (book: PartitionBook<string>): number[] =>
  book
    .next(1_000, 1_000_000)
    .flatMap((part) => part.messages.map((one) => Number(one.message.offset)));

function begun(at = 0): PartitionBook<string> {
  const book = new PartitionBook<string>();
  book.rebase(0, BigInt(at));
  return book;
}

describe("PartitionBook", () => {
  it("takes what continues, and leaves out what it has", () => {
    const book = begun(5);
    expect(book.receive(batch(5, [3, 4, 5, 6]))).toBe("taken"); // A batch of the log began before.
    expect(book.receive(batch(6, [6, 7]))).toBe("taken");
    expect(offsetsOf(book)).toEqual([5, 6, 7]);
  });

  it("refuses a batch that was asked for behind what is missing", () => {
    const book = begun(5);
    expect(book.receive(batch(7, [7, 8]))).toEqual({ seek: 5n });
    expect(book.count).toBe(0);
  });

  it("knows nothing of partitions that it was not given", () => {
    const book = begun();
    expect(book.receive({ ...batch(0, [0]), partition: 1 })).toBe("ignored");
  });

  it("crosses offsets that are no messages, at the end of a batch and between two", () => {
    const book = begun();
    book.receive(batch(0, [0, 2], 9)); // Compacted, and markers of transactions behind it.
    const [part] = book.next(10, 1_000_000);
    expect(part).toMatchObject({ from: 0n, to: 9n });
    book.settle(book.next(10, 1_000_000));
    expect(book.receive(batch(9, []))).toBe("taken");
    expect(book.stored.get(0)).toBe(9n);
  });

  it("moves the offset alone over a tail that has no message", () => {
    const book = begun();
    book.receive(batch(0, [], 3)); // Markers, or what was aborted.
    const parts = book.next(10, 1_000_000);
    expect(parts).toEqual([{ partition: 0, from: 0n, to: 3n, messages: [] }]);
    book.receive(batch(3, [3]));
    book.settle(parts);
    expect(book.stored.get(0)).toBe(3n);
    expect(book.next(10, 1_000_000)[0]).toMatchObject({ from: 3n, to: 4n });
    book.drop(0);
    book.rebase(0, 0n);
    book.settle(parts); // Begun anew meanwhile: it was not fetched so far.
    expect(book.stored.get(0)).toBe(0n);
  });

  it("stores up to the first message that does not fit", () => {
    const book = begun();
    book.receive(batch(0, [0, 1, 2, 3]));
    expect(book.next(3, 1_000_000)[0]).toMatchObject({ from: 0n, to: 3n });
    expect(book.next(10, 250)[0]).toMatchObject({ from: 0n, to: 2n });
    expect(book.next(10, 1)[0]).toMatchObject({ from: 0n, to: 1n });
  });

  it("settles once, and not what was begun anew meanwhile", () => {
    const book = begun();
    book.receive(batch(0, [0, 1, 2, 3]));
    const parts = book.next(2, 1_000_000);
    book.settle(parts);
    book.settle(parts);
    expect(book.stored.get(0)).toBe(2n);
    expect(offsetsOf(book)).toEqual([2, 3]);
    const late = book.next(2, 1_000_000);
    book.drop(0);
    book.rebase(0, 2n);
    book.receive(batch(2, [2, 3]));
    book.settle(late);
    expect(book.stored.get(0)).toBe(2n);
    expect(book.count).toBe(2);
  });

  it("keeps what waits when somebody else stored a part of it", () => {
    const book = begun();
    book.receive(batch(0, [0, 1, 2, 3]));
    expect(book.rebase(0, 2n)).toBe(4n);
    expect(offsetsOf(book)).toEqual([2, 3]);
    expect(book.next(10, 1_000_000)[0]).toMatchObject({ from: 2n, to: 4n });
  });

  it("begins anew where what is stored lies elsewhere", () => {
    const book = begun(5);
    book.receive(batch(5, [5, 6]));
    expect(book.rebase(0, 9n)).toBe(9n);
    expect(book.rebase(0, 2n)).toBe(2n);
    expect([book.count, book.bytes]).toEqual([0, 0]);
  });

  it("takes from every partition in turn, so that none waits for ever", () => {
    const book = new PartitionBook<string>();
    for (const partition of [0, 1]) {
      book.rebase(partition, 0n);
      book.receive({ ...batch(0, [0, 1, 2]), partition });
    }
    const firsts = [book.next(2, 1_000_000), book.next(2, 1_000_000)];
    const taken = firsts.flatMap((parts) => parts.map(({ partition }) => partition));
    expect(new Set(taken)).toEqual(new Set([0, 1]));
  });

  it("counts what it holds", () => {
    const book = begun();
    book.receive(batch(0, [0, 1, 2, 3]));
    expect([book.count, book.bytes]).toEqual([4, 440]);
    book.settle(book.next(1, 1_000_000));
    expect([book.count, book.bytes]).toEqual([3, 330]);
    book.drop(0);
    expect([book.count, book.bytes]).toEqual([0, 0]);
  });
});
