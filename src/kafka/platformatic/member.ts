import type { BaseOptions, ConnectionPool, Consumer } from "@platformatic/kafka";
import { Bell } from "../../base/bell.ts";
import { type Clock, pause } from "../../base/clock.ts";
import { UnavailableError } from "../../base/errors.ts";
import { runLoop, type TurnResult } from "../../base/loop.ts";
import { describeError, quietly } from "../client-errors.ts";
import type { Membership, Subscription } from "../source.ts";
import { messagesOf, nextOffsetOf } from "./records.ts";

type Package = typeof import("@platformatic/kafka");
type FetchResponse = Awaited<ReturnType<Consumer["fetch"]>>;

/** A partition that is read. */
interface Reading {
  /** Where the next fetch begins; undefined until it is said. */
  position: bigint | undefined;
  isPaused: boolean;
  isUnderWay: boolean;
}

const IDLE_MS = 60_000;
/** How long a broker waits for messages before it says that there are none. */
const FETCH_WAIT_MS = 250;
const FETCH_BYTES_FACTOR = 8;
const READ_COMMITTED = 1;
const OFFSET_OUT_OF_RANGE = 1;
const HEARTBEATS_PER_SESSION = 10;

/**
 * A member of a group that fetches by itself. The client's own stream begins at what the group has
 * stored whenever the group changes; here every fetch names its partition, its offset, and the
 * topic by id, so that what comes is what was asked for. One fetch per broker is under way.
 */
export class PlatformaticMember implements Membership {
  readonly #subscription: Subscription;
  readonly #consumer: Consumer;
  readonly #pool: ConnectionPool;
  readonly #clock: Clock;
  readonly #readings = new Map<number, Reading>();
  readonly #brokers = new Map<number, { readonly bell: Bell; readonly ended: Promise<void> }>();
  readonly #over = new AbortController();
  #leaders = new Map<number, number>();
  #lastBeatMs: number;
  #turn = 0;

  constructor(library: Package, options: BaseOptions, subscription: Subscription, clock: Clock) {
    const { groupId, sessionTimeoutMs } = subscription;
    this.#subscription = subscription;
    this.#clock = clock;
    this.#lastBeatMs = clock.now();
    this.#consumer = new library.Consumer({
      ...options,
      groupId,
      sessionTimeout: sessionTimeoutMs,
      rebalanceTimeout: sessionTimeoutMs,
      heartbeatInterval: sessionTimeoutMs / HEARTBEATS_PER_SESSION,
      autocommit: false,
    });
    this.#pool = new library.ConnectionPool(options.clientId, options);
    this.#consumer.on("error", (error: Error) => this.#fail(error));
    this.#consumer.on("consumer:group:join", () => this.#assign());
    this.#consumer.on("consumer:heartbeat:end", () => {
      this.#lastBeatMs = clock.now();
    });
    this.#consumer.on("consumer:heartbeat:error", ({ error }) => {
      // The group has given its partitions to others by now. The client may ask the wrong broker
      // for ever; another member asks who the right one is.
      if (clock.now() - this.#lastBeatMs > sessionTimeoutMs) this.#fail(error);
    });
  }

  async join(): Promise<void> {
    this.#consumer.topics.track(this.#subscription.topic);
    await this.#findLeaders();
    await this.#consumer.joinGroup({});
    this.#lastBeatMs = this.#clock.now();
  }

  seek(partition: number, offset: bigint): void {
    const reading = this.#readings.get(partition);
    if (reading === undefined) return;
    reading.position = offset;
    reading.isPaused = false;
    this.#ring(partition);
  }

  pause(partition: number): void {
    const reading = this.#readings.get(partition);
    if (reading !== undefined) reading.isPaused = true;
  }

  resume(partition: number): void {
    const reading = this.#readings.get(partition);
    if (reading === undefined) return;
    reading.isPaused = false;
    this.#ring(partition);
  }

  async commit(offsets: ReadonlyMap<number, bigint>): Promise<void> {
    const { topic } = this.#subscription;
    await this.#consumer.commit({
      offsets: [...offsets].map(([partition, offset]) => ({
        topic,
        partition,
        offset,
        leaderEpoch: -1,
      })),
    });
  }

  async leave(): Promise<void> {
    this.#over.abort();
    this.#readings.clear();
    const ended = Promise.all([...this.#brokers.values()].map((broker) => broker.ended));
    // Closed under a fetch, the client would try it again and again.
    await Promise.race([
      ended,
      pause(2 * FETCH_WAIT_MS, this.#clock, new AbortController().signal),
    ]);
    await quietly(() => this.#pool.close());
    await ended;
    // The client asks for the topics before it leaves, and could not leave one that is gone.
    this.#consumer.topics.clear();
    const hasLeft = await quietly(() => this.#consumer.leaveGroup(true));
    if (!hasLeft) {
      // Without an id it believes that it has left, and stops its heartbeats.
      this.#consumer.memberId = null;
      await quietly(() => this.#consumer.leaveGroup(true));
    }
    await quietly(() => this.#consumer.close(true));
  }

  #fail(error: unknown): void {
    if (this.#over.signal.aborted) return;
    const { topic, listener } = this.#subscription;
    const message = `Kafka: read ${topic}: ${describeError(error)}`;
    listener.onFailure(new UnavailableError(message, { cause: error }));
  }

  #assign(): void {
    if (this.#over.signal.aborted) return;
    const { topic, listener } = this.#subscription;
    const held = (this.#consumer.assignments ?? []).find((one) => one.topic === topic);
    const partitions = [...(held?.partitions ?? [])].sort((a, b) => a - b);
    for (const partition of this.#readings.keys()) {
      if (!partitions.includes(partition)) this.#readings.delete(partition);
    }
    for (const partition of partitions) {
      if (this.#readings.has(partition)) continue;
      const reading = { position: undefined, isPaused: false, isUnderWay: false };
      this.#readings.set(partition, reading);
    }
    listener.onAssigned(partitions);
  }

  async #findLeaders(): Promise<void> {
    const { topic, topicId } = this.#subscription;
    const { topics } = await this.#consumer.metadata({ topics: [topic], forceUpdate: true });
    const found = topics.get(topic);
    if (found?.id !== topicId) throw new UnavailableError(`topic ${topic} is another one now`);
    this.#leaders = new Map(found.partitions.map(({ leader }, partition) => [partition, leader]));
  }

  #ring(partition: number): void {
    const node = this.#leaders.get(partition);
    if (node === undefined || this.#over.signal.aborted) return;
    let broker = this.#brokers.get(node);
    if (broker === undefined) {
      const bell = new Bell();
      broker = { bell, ended: this.#fetchFrom(node, bell) };
      this.#brokers.set(node, broker);
    }
    broker.bell.ring();
  }

  async #fetchFrom(node: number, bell: Bell): Promise<void> {
    const turn = async (): Promise<TurnResult> => await this.#fetch(node);
    const onFailure = (error: unknown): number => {
      this.#fail(error);
      return IDLE_MS; // It is left soon.
    };
    await runLoop(turn, { clock: this.#clock, bell, onFailure }, this.#over.signal);
  }

  async #fetch(node: number): Promise<TurnResult> {
    const asked = this.#wanted(node);
    if (asked.size === 0) return { restMs: IDLE_MS };
    const { topicId, fetchBytes } = this.#subscription;
    const request = {
      topicId,
      partitions: [...asked].map(([partition, [, fetchOffset]]) => ({
        partition,
        fetchOffset,
        currentLeaderEpoch: -1,
        lastFetchedEpoch: -1,
        partitionMaxBytes: fetchBytes,
      })),
    };
    let response: FetchResponse;
    try {
      response = await this.#consumer.fetch({
        node,
        connectionPool: this.#pool,
        topics: [request],
        maxWaitTime: FETCH_WAIT_MS,
        minBytes: 1,
        maxBytes: fetchBytes * FETCH_BYTES_FACTOR,
        isolationLevel: READ_COMMITTED,
      });
    } catch (error) {
      const answered = answerOf(error);
      if (answered === undefined) throw error;
      response = answered;
    } finally {
      for (const [reading] of asked.values()) reading.isUnderWay = false;
    }
    this.#deliver(response, asked);
    return "again";
  }

  /**
   * Each time another one first: a broker fills its answer in the order of the request, and what
   * is larger than a fetch comes only when it is the first.
   */
  #wanted(node: number): Map<number, readonly [Reading, bigint]> {
    const wanted: (readonly [number, readonly [Reading, bigint]])[] = [];
    for (const [partition, reading] of this.#readings) {
      const { position, isPaused, isUnderWay } = reading;
      if (position === undefined || isPaused || isUnderWay) continue;
      if (this.#leaders.get(partition) !== node) continue;
      reading.isUnderWay = true;
      wanted.push([partition, [reading, position]]);
    }
    this.#turn += 1;
    const first = wanted.length === 0 ? 0 : this.#turn % wanted.length;
    return new Map([...wanted.slice(first), ...wanted.slice(0, first)]);
  }

  #deliver(response: FetchResponse, asked: ReadonlyMap<number, readonly [Reading, bigint]>): void {
    const { listener } = this.#subscription;
    for (const { partitions } of response.responses) {
      for (const answer of partitions) {
        const { partitionIndex: partition, errorCode, records = [] } = answer;
        const [reading, fetchedOffset] = asked.get(partition) ?? [];
        // Given away, or sent elsewhere, while the answer was on its way.
        if (reading === undefined || fetchedOffset === undefined) continue;
        if (this.#readings.get(partition) !== reading) continue;
        if (reading.position !== fetchedOffset) continue;
        if (errorCode === OFFSET_OUT_OF_RANGE) {
          reading.position = undefined;
          listener.onOutOfRange(partition, fetchedOffset);
          continue;
        }
        // The leader is another one, or the topic: the next member asks who it is.
        if (errorCode !== 0) throw new UnavailableError(`a fetch had error ${errorCode}`);
        if (records.length === 0) continue;
        const nextOffset = nextOffsetOf(records, fetchedOffset);
        reading.position = nextOffset;
        listener.onBatch({
          partition,
          fetchedOffset,
          nextOffset,
          messages: messagesOf(records, answer.abortedTransactions, fetchedOffset),
          endOffset: answer.highWatermark,
        });
      }
    }
  }
}

/** The client throws an answer away when a part of it is an error. */
function answerOf(error: unknown): FetchResponse | undefined {
  const { response } = error as { response?: FetchResponse };
  return Array.isArray(response?.responses) && response.responses.length > 0 ? response : undefined;
}
