import { exponentialMs, withJitter } from "../base/backoff.ts";
import { Bell } from "../base/bell.ts";
import type { Clock } from "../base/clock.ts";
import { CommitUnknownError, messageOf } from "../base/errors.ts";
import type { Logger } from "../base/log.ts";
import { runLoop, type TurnResult } from "../base/loop.ts";
import type { Database } from "../db/database.ts";
import { LostPartitions } from "./data-loss.ts";
import type { ResolvedIngestOptions, ResolvedIngestTopic } from "./ingest-options.ts";
import { type MessageStore, type Note, OffsetMovedError, type Stored } from "./message-store.ts";
import type { KafkaMetrics } from "./metrics.ts";
import { type Part, PartitionBook } from "./partition-book.ts";
import type { FetchedBatch, KafkaSource, Membership } from "./source.ts";
import { readOffsets, type TopicRef } from "./sql/offsets.ts";
import { beginTopic } from "./topic-start.ts";
import type { TopicWatch } from "./topic-watch.ts";

export interface TopicLineContext {
  readonly source: KafkaSource;
  readonly db: Database;
  readonly store: MessageStore;
  readonly watch: TopicWatch;
  readonly options: ResolvedIngestOptions;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly metrics: KafkaMetrics;
  /** Tasks were committed. */
  readonly onStored: (stored: Stored) => void;
}

/** What is known of a partition that is read here, for people. */
export interface PartitionStatus {
  readonly partition: number;
  /** The next offset that becomes a task. */
  readonly nextOffset: bigint;
  /** Messages behind it, when a message was last fetched. */
  readonly lag: bigint;
  /** Why it is not read, if it is not. */
  readonly problem: string | undefined;
}

const IDLE_MS = 60_000;
const RETRY_MS = 100;
const RETRY_MS_MAX = 10_000;
/** How often the group is told what is stored. */
const GROUP_COMMIT_MS = 1_000;

/**
 * One topic: a member of its group, which fetches, and a loop that stores.
 *
 * The member is joining → reading → left, and joins again after a failure, or when the topic is
 * another one or has more partitions. A partition that it is given is unplaced until the loop has
 * read in PostgreSQL where it goes on. The loop stores what waits, one transaction at a time:
 *
 * - committed: the book moves on.
 * - others have stored some of it, or nobody knows whether it was committed: what is stored is read
 *   again, and what is not is done again.
 * - undone: the same again, after a pause. What waits stays; fetching stops when it is too much.
 *
 * If the process dies, whatever it was doing, the stored offset is true and the next member begins
 * there. A partition that was taken away is forgotten with what waits of it; a transaction that is
 * on its way then may still commit, and the next member finds its offset.
 */
export class TopicLine {
  readonly #context: TopicLineContext;
  readonly #topic: ResolvedIngestTopic;
  readonly #bell = new Bell();
  #ref: TopicRef | undefined;
  #book = new PartitionBook<Note>();
  #member: Membership | undefined;
  #assigned: ReadonlySet<number> = new Set();
  readonly #unplaced = new Set<number>();
  readonly #ends = new Map<number, bigint>();
  readonly #lost: LostPartitions;
  /** Rings when something is to be looked at before its time. */
  readonly #lookBell = new Bell();
  #isFull = false;
  #told = new Map<number, bigint>();
  #underWay = 0;
  #storing: Promise<void> | undefined;

  constructor(topic: ResolvedIngestTopic, context: TopicLineContext) {
    this.#topic = topic;
    this.#context = context;
    this.#lost = new LostPartitions(topic.topic, context);
  }

  get topic(): string {
    return this.#topic.topic;
  }

  get buffered(): number {
    return this.#book.count;
  }

  /** Messages whose transaction is under way, or about to be. */
  get storing(): number {
    return this.#underWay;
  }

  /** The partitions that are read here now. */
  status(): PartitionStatus[] {
    return [...this.#book.stored]
      .map(([partition, nextOffset]) => ({
        partition,
        nextOffset,
        lag: this.#lagOf(partition, nextOffset),
        problem: this.#lost.problemOf(partition),
      }))
      .sort((a, b) => a.partition - b.partition);
  }

  async run(signal: AbortSignal): Promise<void> {
    const { clock } = this.#context;
    const session = async (): Promise<TurnResult> => await this.#session(signal);
    const store = async (): Promise<TurnResult> => await this.#turn();
    const onFailure = (doing: string) => (error: unknown, failures: number) =>
      this.#failed(doing, error, failures);
    const options = { clock, bell: this.#bell, onFailure: onFailure("store") };
    this.#storing = runLoop(store, options, signal);
    const reading = { clock, bell: new Bell(), onFailure: onFailure("read") };
    await Promise.all([runLoop(session, reading, signal), this.#storing]);
  }

  #failed(doing: string, error: unknown, failures: number): number {
    const { metrics, logger } = this.#context;
    metrics.failures.add(1, { topic: this.topic, doing });
    const restMs = withJitter(exponentialMs(failures, RETRY_MS, RETRY_MS_MAX));
    const fields = { topic: this.topic, doing, failures, error: messageOf(error), restMs };
    logger.warn(fields, "Kafka ingest failed and is tried again");
    return restMs;
  }

  /** One membership, from joining to leaving. Ends with what made it leave. */
  async #session(signal: AbortSignal): Promise<TurnResult> {
    const { source, options, watch, clock, metrics } = this.#context;
    const { topicId, partitions } = await watch.require(this.topic);
    await this.#begin(topicId, partitions);
    const over = new AbortController();
    let failure: unknown;
    const end = (error?: unknown): void => {
      failure ??= error;
      over.abort();
    };
    const member = await source.join({
      groupId: `${options.group}.${this.topic}`,
      topic: this.topic,
      topicId,
      fetchBytes: options.fetchBytes,
      sessionTimeoutMs: options.sessionSeconds * 1000,
      listener: {
        onAssigned: (held) => {
          metrics.rebalances.add(1, { topic: this.topic });
          this.#assign(held);
        },
        onBatch: (batch) => this.#receive(batch),
        onOutOfRange: (partition) => {
          if (this.#assigned.has(partition)) this.#lost.report(partition);
          this.#lookBell.ring();
        },
        onFailure: end,
      },
    });
    this.#member = member;
    const joinedMs = clock.now();
    for (const partition of this.#assigned) this.#unplaced.add(partition);
    this.#bell.ring();
    try {
      const look = async (): Promise<TurnResult> => {
        await this.#tellGroup(member);
        await this.#settleLost();
        const isSame = await watch.isStill(this.topic, { topicId, partitions });
        if (!isSame) end();
        return { restMs: GROUP_COMMIT_MS };
      };
      const onFailure = (error: unknown): number => {
        end(error);
        return 0;
      };
      const either = AbortSignal.any([signal, over.signal]);
      await runLoop(look, { clock, bell: this.#lookBell, onFailure }, either);
    } finally {
      for (const partition of this.#assigned) member.pause(partition);
      if (signal.aborted) await this.#storing; // What is under way is told to the group, too.
      await this.#leave(member);
    }
    if (failure === undefined || signal.aborted) return "again";
    if (clock.now() - joinedMs < RETRY_MS_MAX) throw failure;
    // It went well for a while: this is no failure in a row.
    return { restMs: this.#failed("read", failure, 1), isDeaf: true };
  }

  /** A row for each partition of the topic as it is now. */
  async #begin(topicId: string, partitions: number): Promise<void> {
    const { options, logger } = this.#context;
    const ref = { source: options.source, topic: this.topic, topicId };
    if (this.#ref !== undefined && this.#ref.topicId !== topicId) {
      logger.warn({ topic: this.topic, topicId }, "the topic was made again, and is read anew");
    }
    await beginTopic(this.#context, ref, partitions);
    this.#ref = ref;
    this.#lost.clear();
  }

  async #leave(member: Membership): Promise<void> {
    const { logger, metrics } = this.#context;
    this.#member = undefined;
    await this.#tellGroup(member).catch(() => {}); // Nobody relies on it.
    this.#assign([]);
    metrics.partitions.set(0, { topic: this.topic });
    await member.leave().catch((error: unknown) => {
      logger.debug({ topic: this.topic, error: messageOf(error) }, "could not leave the group");
    });
  }

  #assign(held: readonly number[]): void {
    const { metrics, logger } = this.#context;
    const before = this.#assigned;
    this.#assigned = new Set(held);
    for (const partition of before) {
      if (this.#assigned.has(partition)) continue;
      this.#book.drop(partition);
      this.#unplaced.delete(partition);
      this.#lost.forget(partition);
      this.#ends.delete(partition);
      metrics.lag.remove({ topic: this.topic, partition: String(partition) });
    }
    for (const partition of held) if (!before.has(partition)) this.#unplaced.add(partition);
    metrics.partitions.set(held.length, { topic: this.topic });
    this.#pauseIfFull(this.#member);
    this.#measure();
    if (held.length > 0)
      logger.info({ topic: this.topic, partitions: held }, "partitions assigned");
    this.#bell.ring();
  }

  #receive(batch: FetchedBatch): void {
    const { partition } = batch;
    const member = this.#member;
    if (member === undefined || this.#unplaced.has(partition)) return;
    const reception = this.#book.receive(batch);
    if (typeof reception === "object") member.seek(partition, reception.seek);
    if (reception !== "taken") return;
    this.#ends.set(partition, batch.endOffset);
    const { bufferMessages, bufferBytes } = this.#context.options;
    this.#isFull ||= this.#book.count >= bufferMessages || this.#book.bytes >= bufferBytes;
    this.#pauseIfFull(member);
    this.#measure();
    this.#bell.ring();
  }

  /** Again with every batch and assignment: a client may forget pauses when its group changes. */
  #pauseIfFull(member: Membership | undefined): void {
    if (!this.#isFull) return;
    for (const partition of this.#assigned) member?.pause(partition);
  }

  #resumeIfRoom(): void {
    const { bufferMessages, bufferBytes } = this.#context.options;
    const { count, bytes } = this.#book;
    if (!this.#isFull || count > bufferMessages / 2 || bytes > bufferBytes / 2) return;
    this.#isFull = false;
    for (const partition of this.#assigned) {
      if (!this.#lost.has(partition)) this.#member?.resume(partition);
    }
  }

  async #turn(): Promise<TurnResult> {
    const ref = this.#ref;
    if (ref === undefined || this.#member === undefined) return { restMs: IDLE_MS };
    if (this.#unplaced.size > 0) await this.#place(ref);
    const { batchMessages, batchBytes } = this.#context.options;
    const parts = this.#book.next(batchMessages, batchBytes);
    if (parts.length === 0) {
      this.#resumeIfRoom();
      return { restMs: IDLE_MS };
    }
    await this.#store(ref, parts);
    this.#measure();
    this.#resumeIfRoom();
    return "again";
  }

  /** Reads where partitions go on, and lets them be fetched from there. */
  async #place(ref: TopicRef): Promise<void> {
    const stored = await readOffsets(this.#context.db, ref);
    for (const partition of this.#unplaced) {
      const next = stored.get(partition);
      // Its row is made before the group is joined; a partition that came later waits for a rejoin.
      if (next === undefined || !this.#assigned.has(partition)) continue;
      this.#unplaced.delete(partition);
      this.#member?.seek(partition, this.#book.rebase(partition, next));
      if (this.#isFull) this.#member?.pause(partition);
    }
  }

  async #store(ref: TopicRef, parts: readonly Part<Note>[]): Promise<void> {
    const { store, clock, metrics, logger, onStored } = this.#context;
    const begunMs = clock.now();
    this.#underWay = parts.reduce((sum, { messages }) => sum + messages.length, 0);
    try {
      const stored = await store.store(ref, this.#topic, parts);
      this.#book.settle(parts);
      metrics.duration.observe((clock.now() - begunMs) / 1000, { topic: this.topic });
      this.#count(stored);
      onStored(stored);
    } catch (error) {
      const isUnknown = error instanceof CommitUnknownError;
      if (!isUnknown && !(error instanceof OffsetMovedError)) throw error;
      // What is stored says what is left to do, whoever stored it.
      metrics.moved.add(1, { topic: this.topic });
      logger.warn({ topic: this.topic, error: messageOf(error) }, "offsets are read again");
      for (const { partition } of parts) {
        if (this.#assigned.has(partition)) this.#unplaced.add(partition);
      }
    } finally {
      this.#underWay = 0;
    }
  }

  #count({ tasks, dead }: Stored): void {
    const { metrics, logger } = this.#context;
    let count = 0;
    for (const some of tasks.values()) count += some;
    if (count > 0) metrics.messages.add(count, { topic: this.topic, outcome: "stored" });
    if (dead === 0) return;
    metrics.messages.add(dead, { topic: this.topic, outcome: "dead" });
    logger.error({ topic: this.topic, messages: dead }, "messages are dead: they are no jobs");
  }

  /** What was asked for of these was not there; some of them can go on. */
  async #settleLost(): Promise<void> {
    if (this.#ref === undefined) return;
    const waits = (partition: number): boolean => this.#book.waitsOf(partition);
    for (const partition of await this.#lost.settle(this.#ref, waits)) {
      if (!this.#assigned.has(partition)) continue;
      this.#book.drop(partition); // Nothing waits, and what is stored says where to fetch from.
      this.#unplaced.add(partition);
      this.#bell.ring();
    }
    this.#measure();
  }

  async #tellGroup(member: Membership): Promise<void> {
    const { stored } = this.#book;
    const news = new Map([...stored].filter(([one, offset]) => this.#told.get(one) !== offset));
    if (news.size === 0) return;
    try {
      await member.commit(news);
      this.#told = stored;
    } catch (error) {
      const fields = { topic: this.topic, error: messageOf(error) };
      this.#context.logger.debug(fields, "the group was not told what is stored");
    }
  }

  #lagOf(partition: number, nextOffset: bigint): bigint {
    const end = this.#lost.endOf(partition) ?? this.#ends.get(partition) ?? nextOffset;
    return end > nextOffset ? end - nextOffset : 0n;
  }

  #measure(): void {
    const { metrics } = this.#context;
    const labels = { topic: this.topic };
    metrics.buffered.set(this.#book.count, labels);
    metrics.bufferedBytes.set(this.#book.bytes, labels);
    for (const [partition, stored] of this.#book.stored) {
      const lag = Number(this.#lagOf(partition, stored));
      metrics.lag.set(lag, { ...labels, partition: String(partition) });
    }
  }
}
