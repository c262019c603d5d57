import type { Consumer, EachBatchPayload, IHeaders, KafkaMessage as JsMessage } from "kafkajs";
import { UnavailableError } from "../../base/errors.ts";
import { describeError } from "../client-errors.ts";
import type { KafkaHeader, KafkaMessage, Membership, Subscription } from "../source.ts";

/** A partition that is read. */
interface Reading {
  /** Where the next batch is to begin; undefined until it is said. */
  position: bigint | undefined;
  /** Batches in a row that began elsewhere. */
  strays: number;
}

/** After a seek one or two batches may still come from where it was. */
const STRAYS_MAX = 5;
const CONCURRENT_PARTITIONS = 8;

/**
 * A member of a group by the client's own loop. It begins where the group's offsets are, whatever
 * it was told, and goes to the oldest message when an offset is not there; so what comes from
 * elsewhere than was asked for is sent back, and asked for again.
 */
export class KafkaJsMember implements Membership {
  readonly #consumer: Consumer;
  readonly #subscription: Subscription;
  readonly #readings = new Map<number, Reading>();
  #isOver = false;

  constructor(consumer: Consumer, subscription: Subscription) {
    this.#consumer = consumer;
    this.#subscription = subscription;
  }

  async join(): Promise<void> {
    const { topic } = this.#subscription;
    const { GROUP_JOIN, CRASH } = this.#consumer.events;
    this.#consumer.on(CRASH, ({ payload }) => this.#fail(payload.error));
    const joined = new Promise<void>((resolve, reject) => {
      this.#consumer.on(CRASH, ({ payload }) => reject(payload.error));
      this.#consumer.on(GROUP_JOIN, ({ payload }) => {
        this.#assign(payload.memberAssignment[topic] ?? []);
        resolve();
      });
    });
    joined.catch(() => {}); // Whoever waits is told.
    await this.#consumer.connect();
    await this.#consumer.subscribe({ topics: [topic], fromBeginning: true });
    await this.#consumer.run({
      autoCommit: false,
      eachBatchAutoResolve: false,
      partitionsConsumedConcurrently: CONCURRENT_PARTITIONS,
      eachBatch: async (payload) => this.#receive(payload),
    });
    await joined;
  }

  seek(partition: number, offset: bigint): void {
    const reading = this.#readings.get(partition);
    if (reading === undefined) return;
    reading.position = offset;
    const { topic } = this.#subscription;
    this.#tell(() => this.#consumer.seek({ topic, partition, offset: String(offset) }));
    this.resume(partition);
  }

  pause(partition: number): void {
    const { topic } = this.#subscription;
    this.#tell(() => this.#consumer.pause([{ topic, partitions: [partition] }]));
  }

  resume(partition: number): void {
    const { topic } = this.#subscription;
    this.#tell(() => this.#consumer.resume([{ topic, partitions: [partition] }]));
  }

  /** A consumer that has crashed refuses to be told anything, and is left soon. */
  #tell(what: () => void): void {
    if (this.#isOver) return;
    try {
      what();
    } catch (error) {
      this.#fail(error);
    }
  }

  async commit(offsets: ReadonlyMap<number, bigint>): Promise<void> {
    const { topic } = this.#subscription;
    await this.#consumer.commitOffsets(
      [...offsets].map(([partition, offset]) => ({ topic, partition, offset: String(offset) })),
    );
  }

  async leave(): Promise<void> {
    this.#isOver = true;
    this.#readings.clear();
    await this.#consumer.disconnect().catch(() => {});
  }

  #fail(error: unknown): void {
    if (this.#isOver) return;
    const { topic, listener } = this.#subscription;
    const message = `Kafka: read ${topic}: ${describeError(error)}`;
    listener.onFailure(new UnavailableError(message, { cause: error }));
  }

  #assign(given: readonly number[]): void {
    if (this.#isOver) return;
    const partitions = [...given].sort((a, b) => a - b);
    for (const partition of this.#readings.keys()) {
      if (!partitions.includes(partition)) this.#readings.delete(partition);
    }
    for (const partition of partitions) {
      const reading = this.#readings.get(partition);
      // The client forgets positions and pauses with every assignment.
      if (reading?.position !== undefined) this.seek(partition, reading.position);
      else {
        this.#readings.set(partition, { position: undefined, strays: 0 });
        this.pause(partition);
      }
    }
    this.#subscription.listener.onAssigned(partitions);
  }

  #receive(payload: EachBatchPayload): void {
    const { batch } = payload;
    const { partition } = batch;
    const reading = this.#readings.get(partition);
    if (reading?.position === undefined || this.#isOver) return;
    const fetchedOffset = fetchedOffsetOf(batch);
    if (fetchedOffset !== reading.position) {
      this.#stray(partition, reading, reading.position);
      return;
    }
    reading.strays = 0;
    const nextOffset = BigInt(batch.lastOffset()) + 1n;
    payload.resolveOffset(batch.lastOffset());
    reading.position = nextOffset > fetchedOffset ? nextOffset : fetchedOffset;
    this.#subscription.listener.onBatch({
      partition,
      fetchedOffset,
      nextOffset: reading.position,
      messages: batch.messages.map(toMessage),
      endOffset: BigInt(batch.highWatermark),
    });
  }

  #stray(partition: number, reading: Reading, position: bigint): void {
    reading.strays += 1;
    if (reading.strays < STRAYS_MAX) {
      this.seek(partition, position);
      return;
    }
    reading.strays = 0;
    reading.position = undefined;
    this.pause(partition);
    this.#subscription.listener.onOutOfRange(partition, position);
  }
}

/** What was asked for: the client has it, and its types do not. */
function fetchedOffsetOf(batch: EachBatchPayload["batch"]): bigint {
  const asked: unknown = Reflect.get(batch, "fetchedOffset");
  if (typeof asked === "string" && /^\d+$/.test(asked)) return BigInt(asked);
  throw new Error("this version of kafkajs does not tell what it asked for; use 2.2.4");
}

function toMessage({ offset, key, value, headers, timestamp }: JsMessage): KafkaMessage {
  const timestampMs = Number(timestamp);
  return {
    offset: BigInt(offset),
    key: key ?? undefined,
    value: value ?? undefined,
    headers: headers === undefined ? [] : toHeaders(headers),
    timestampMs: timestampMs >= 0 ? timestampMs : undefined,
  };
}

function toHeaders(headers: IHeaders): KafkaHeader[] {
  return Object.entries(headers).flatMap(([name, values]) =>
    [values ?? []].flat().map((value) => ({ name, value: Buffer.from(value) })),
  );
}
