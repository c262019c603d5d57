import type { KafkaMessage } from "../source.ts";

/** A batch of the log as the client reads it. */
export interface RecordBatch {
  readonly firstOffset: bigint;
  readonly lastOffsetDelta: number;
  readonly attributes: number;
  readonly firstTimestamp: bigint;
  readonly producerId: bigint;
  readonly records: readonly {
    readonly offsetDelta: number;
    readonly timestampDelta: bigint;
    readonly key: Buffer | null;
    readonly value: Buffer | null;
    readonly headers: readonly (readonly [Buffer | null, Buffer | null])[];
  }[];
}

export interface AbortedTransaction {
  readonly producerId: bigint;
  readonly firstOffset: bigint;
}

const IS_TRANSACTIONAL = 1 << 4;
const IS_CONTROL = 1 << 5;
const ABORT = 0;
const NOTHING = Buffer.alloc(0);

const lastOffsetOf = (batch: RecordBatch): bigint =>
  batch.firstOffset + BigInt(batch.lastOffsetDelta);

/** Behind the last offset of what was read, or what was asked for when nothing was. */
export function nextOffsetOf(batches: readonly RecordBatch[], fetchedOffset: bigint): bigint {
  const last = batches.at(-1);
  const next = last === undefined ? fetchedOffset : lastOffsetOf(last) + 1n;
  return next > fetchedOffset ? next : fetchedOffset;
}

/**
 * The messages from an offset on that were committed. What a transaction wrote that was aborted is
 * none, also when its end lies in a later fetch: so the client's own filter is not enough.
 */
export function messagesOf(
  batches: readonly RecordBatch[],
  aborted: readonly AbortedTransaction[],
  fetchedOffset: bigint,
): KafkaMessage[] {
  const messages: KafkaMessage[] = [];
  const pending = [...aborted].sort((a, b) => (a.firstOffset < b.firstOffset ? -1 : 1));
  const abortedNow = new Set<bigint>();
  for (const batch of batches) {
    const last = lastOffsetOf(batch);
    for (let next = pending[0]; next !== undefined && next.firstOffset <= last; next = pending[0]) {
      abortedNow.add(next.producerId);
      pending.shift();
    }
    if ((batch.attributes & IS_CONTROL) !== 0) {
      if (isAbort(batch)) abortedNow.delete(batch.producerId);
      continue;
    }
    const isTransactional = (batch.attributes & IS_TRANSACTIONAL) !== 0;
    if (isTransactional && abortedNow.has(batch.producerId)) continue;
    append(messages, batch, fetchedOffset);
  }
  return messages;
}

function isAbort({ records }: RecordBatch): boolean {
  const key = records[0]?.key;
  return key !== undefined && key !== null && key.length >= 4 && key.readInt16BE(2) === ABORT;
}

function append(messages: KafkaMessage[], batch: RecordBatch, fetchedOffset: bigint): void {
  const firstMs = Number(batch.firstTimestamp);
  for (const { offsetDelta, timestampDelta, key, value, headers } of batch.records) {
    const offset = batch.firstOffset + BigInt(offsetDelta);
    if (offset < fetchedOffset) continue; // A batch is sent whole.
    const timestampMs = firstMs + Number(timestampDelta);
    messages.push({
      offset,
      key: key ?? undefined,
      value: value ?? undefined,
      headers:
        headers.length === 0
          ? []
          : headers.map(([name, text]) => ({ name: String(name), value: text ?? NOTHING })),
      timestampMs: timestampMs >= 0 ? timestampMs : undefined,
    });
  }
}
