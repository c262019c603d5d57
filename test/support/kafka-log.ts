import { randomUUID } from "node:crypto";
import type {
  FetchedBatch,
  KafkaClient,
  KafkaMessage,
  MemberListener,
  Membership,
  OffsetRange,
  OutgoingMessage,
  Subscription,
  TopicDescription,
} from "../../src/kafka/index.ts";

/**
 * A topic of one partition in memory, with which the unlikely is made to happen at once: its log
 * loses its beginning or its end. `test/kafka/` shows that brokers and clients behave like this.
 */
export class KafkaLog implements KafkaClient {
  readonly topicId = randomUUID();
  /** Undefined for what is no message: the marker of a transaction. */
  readonly records: (string | undefined)[] = [];
  earliest = 0;
  readonly published: OutgoingMessage[] = [];
  readonly asked: bigint[] = [];
  listener: MemberListener | undefined;
  isPaused = false;
  pauses = 0;
  #position: bigint | undefined;
  readonly #fetchMessages: number;

  constructor(fetchMessages = 10) {
    this.#fetchMessages = fetchMessages;
  }

  describeTopics(topics: readonly string[]): Promise<ReadonlyMap<string, TopicDescription>> {
    const found = topics.map((topic) => [topic, { topicId: this.topicId, partitions: 1 }] as const);
    return Promise.resolve(new Map(found));
  }

  createTopics(): Promise<void> {
    return Promise.resolve();
  }

  listOffsets(): Promise<readonly OffsetRange[]> {
    const latest = BigInt(this.records.length);
    return Promise.resolve([{ earliest: BigInt(this.earliest), latest }]);
  }

  join({ listener }: Subscription): Promise<Membership> {
    this.listener = listener;
    listener.onAssigned([0]);
    return Promise.resolve({
      seek: (_, offset) => {
        this.#position = offset;
        this.isPaused = false;
        this.fetch();
      },
      pause: () => {
        this.isPaused = true;
        this.pauses += 1;
      },
      resume: () => {
        this.isPaused = false;
        this.fetch();
      },
      commit: () => Promise.resolve(),
      leave: () => {
        this.#position = undefined;
        return Promise.resolve();
      },
    });
  }

  /** Jobs with these numbers. */
  write(...numbers: readonly number[]): void {
    for (const n of numbers) this.records.push(JSON.stringify({ payload: { n } }));
    this.fetch();
  }

  fetch(): void {
    setImmediate(() => this.#fetch());
  }

  #fetch(): void {
    const fetchedOffset = this.#position;
    if (fetchedOffset === undefined || this.isPaused) return;
    this.asked.push(fetchedOffset);
    const from = Number(fetchedOffset);
    if (from < this.earliest || from > this.records.length) {
      this.#position = undefined;
      this.listener?.onOutOfRange(0, fetchedOffset);
      return;
    }
    const some = this.records.slice(from, from + this.#fetchMessages);
    if (some.length === 0) return;
    this.#position = fetchedOffset + BigInt(some.length);
    this.listener?.onBatch(this.#batch(fetchedOffset, some));
    this.fetch();
  }

  #batch(fetchedOffset: bigint, some: readonly (string | undefined)[]): FetchedBatch {
    return {
      partition: 0,
      fetchedOffset,
      nextOffset: fetchedOffset + BigInt(some.length),
      messages: some.flatMap((value, place): KafkaMessage[] =>
        value === undefined ? [] : [message(fetchedOffset + BigInt(place), value)],
      ),
      endOffset: BigInt(this.records.length),
    };
  }

  publish(messages: readonly OutgoingMessage[]): Promise<void> {
    this.published.push(...messages);
    return Promise.resolve();
  }

  close(): Promise<void> {
    return Promise.resolve();
  }
}

const message = (offset: bigint, value: string): KafkaMessage => ({
  offset,
  key: undefined,
  value: Buffer.from(value),
  headers: [],
  timestampMs: undefined,
});
