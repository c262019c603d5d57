import { describe, expect, it } from "vitest";
import { messagesOf, nextOffsetOf, type RecordBatch } from "./records.ts";

const TRANSACTIONAL = 1 << 4;
const CONTROL = 1 << 5;

function batch(first: number, count: number, more: Partial<RecordBatch> = {}): RecordBatch {
  return {
    firstOffset: BigInt(first),
    lastOffsetDelta: count - 1,
    attributes: 0,
    firstTimestamp: 1_000n,
    producerId: -1n,
    records: Array.from({ length: count }, (_, offsetDelta) => ({
      offsetDelta,
      timestampDelta: BigInt(offsetDelta),
      key: null,
      value: Buffer.from(String(first + offsetDelta)),
      headers: [],
    })),
    ...more,
  };
}

function marker(at: number, producerId: bigint, type: 0 | 1): RecordBatch {
  const key = Buffer.from([0, 0, 0, type]);
  const [record] = batch(at, 1).records;
  if (record === undefined) throw new Error("a batch without a record");
  return batch(at, 1, {
    attributes: TRANSACTIONAL | CONTROL,
    producerId,
    records: [{ ...record, key }],
  });
}

const offsets = (...given: Parameters<typeof messagesOf>): number[] =>
  messagesOf(...given).map(({ offset }) => Number(offset));

describe("messagesOf", () => {
  it("gives messages from the offset on, with the time that each was given", () => {
    expect(offsets([batch(0, 3), batch(3, 2)], [], 2n)).toEqual([2, 3, 4]);
    expect(messagesOf([batch(7, 2)], [], 0n).map(({ timestampMs }) => timestampMs)).toEqual([
      1_000, 1_001,
    ]);
  });

  it("leaves out what was aborted, and markers", () => {
    const written = batch(2, 2, { attributes: TRANSACTIONAL, producerId: 7n });
    const batches = [batch(0, 2), written, batch(4, 1), marker(5, 7n, 0), batch(6, 1)];
    expect(offsets(batches, [{ producerId: 7n, firstOffset: 2n }], 0n)).toEqual([0, 1, 4, 6]);
    expect(offsets(batches, [], 0n)).toEqual([0, 1, 2, 3, 4, 6]);
  });

  it("leaves out what was aborted when its marker lies in a later fetch", () => {
    const written = batch(2, 2, { attributes: TRANSACTIONAL, producerId: 7n });
    expect(offsets([batch(0, 2), written], [{ producerId: 7n, firstOffset: 2n }], 0n)).toEqual([
      0, 1,
    ]);
  });

  it("knows two aborted transactions of one producer, and a committed one between them", () => {
    const of = (at: number): RecordBatch =>
      batch(at, 1, { attributes: TRANSACTIONAL, producerId: 7n });
    const batches = [of(0), marker(1, 7n, 0), of(2), marker(3, 7n, 1), of(4), marker(5, 7n, 0)];
    const aborted = [
      { producerId: 7n, firstOffset: 4n },
      { producerId: 7n, firstOffset: 0n },
    ];
    expect(offsets(batches, aborted, 0n)).toEqual([2]);
  });
});

describe("nextOffsetOf", () => {
  it("is behind the last batch, whether it has messages or not", () => {
    expect(nextOffsetOf([batch(0, 3), marker(3, 7n, 1)], 0n)).toBe(4n);
    expect(nextOffsetOf([], 9n)).toBe(9n);
  });
});
