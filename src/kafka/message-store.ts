import { InvalidInputError, messageOf, storable, TidemillError } from "../base/errors.ts";
import type { Connection, Database } from "../db/database.ts";
import { setLockTimeout } from "../db/sql/session.ts";
import { isRefusal, mapDatabaseError } from "../db/sqlstate.ts";
import type { EncodedTask } from "../tasks/encode.ts";
import type { EnqueueContext } from "../tasks/enqueue.ts";
import { storeBulks } from "../tasks/store.ts";
import { header, headersJson } from "./headers.ts";
import type { ResolvedIngestTopic } from "./ingest-options.ts";
import { type JobRules, readJob } from "./job.ts";
import type { JobEncoder } from "./job-encoder.ts";
import type { Buffered, Part } from "./partition-book.ts";
import type { KafkaMessage, KafkaSink, OutgoingMessage } from "./source.ts";
import { buryMessages, type NewDeadMessage } from "./sql/dead-messages.ts";
import { moveOffset, type TopicRef } from "./sql/offsets.ts";

/** Why a message is dead. It is published once, where it is published at all and is taken. */
interface DeadNote {
  readonly refusal: string;
  isPublished: boolean;
  publishRefusal?: string;
}

/** What a message is. */
export type Note = { readonly task: EncodedTask } | DeadNote;

/** The topic of messages that are no jobs. */
export interface DeadLetters {
  readonly sink: KafkaSink;
  readonly topic: string;
  /** Whether there is no such topic, so that nothing can be published to it. */
  readonly isGone: () => Promise<boolean>;
}

export interface StoreContext {
  readonly db: Database;
  readonly enqueue: EnqueueContext;
  readonly encoder: JobEncoder;
  readonly rules: JobRules;
  readonly deadLetters: DeadLetters | undefined;
}

/** What became of messages. */
export interface Stored {
  /** Tasks by queue. */
  readonly tasks: ReadonlyMap<string, number>;
  readonly dead: number;
}

/** Somebody else has stored messages that were to be stored. Nothing was written. */
export class OffsetMovedError extends Error {
  readonly partitions: readonly number[];

  constructor(partitions: readonly number[]) {
    super(`others have stored messages of partitions ${partitions.join(", ")}`);
    this.partitions = partitions;
  }
}

/** Rolls back: some tasks are refused, and are to be buried at the next try. */
class TasksRefused extends Error {}

/** A transaction of somebody else may hold an idempotency key; the group must not wait for long. */
const LOCK_PATIENCE_MS = 2_000;
const REASON_LENGTH_MAX = 2_000;
const TIMESTAMP_MS_MAX = Date.UTC(9999, 11, 31);

/**
 * Makes tasks of messages: one transaction compares and sets the next offset of each partition,
 * stores the tasks and buries the messages that can be none. If it is undone, or nobody knows
 * whether it was committed, the stored offset says what is to be done again.
 */
export class MessageStore {
  readonly #context: StoreContext;

  constructor(context: StoreContext) {
    this.#context = context;
  }

  /**
   * Throws OffsetMovedError when the messages are stored already, at least in part, and
   * CommitUnknownError when they may be; with any other error nothing is.
   */
  async store(
    ref: TopicRef,
    topic: ResolvedIngestTopic,
    parts: readonly Part<Note>[],
  ): Promise<Stored> {
    const messages = parts.flatMap((part) => part.messages);
    for (const one of messages) {
      const examining = one.note === undefined ? this.#examine(one, topic) : undefined;
      if (examining !== undefined) await examining;
    }
    await this.#publishDead(topic, messages);
    try {
      await this.#transact(ref, parts, messages);
    } catch (error) {
      if (error instanceof TasksRefused) return await this.store(ref, topic, parts);
      if (!isRefusal(error)) throw error;
      return await this.#divide(ref, topic, parts, error);
    }
    this.#context.enqueue.notifier.ring();
    return tally(messages);
  }

  /** Most need nothing that must be waited for, and thousands come at once. */
  #examine(
    one: Buffered<Note>,
    { topic, priority }: ResolvedIngestTopic,
  ): Promise<void> | undefined {
    const place = { topic, partition: one.partition, priority };
    const job = readJob(one.message, place, this.#context.rules);
    if ("refusal" in job) {
      one.note = refused(job.refusal);
      return undefined;
    }
    const onFailure = (error: unknown): void => {
      // Anything else, such as a connection that broke, says nothing about the message.
      if (!(error instanceof InvalidInputError)) throw error;
      one.note = refused(messageOf(error));
    };
    try {
      const encoding = this.#context.encoder.encode(job.queue, job.task);
      if (encoding instanceof Promise) {
        return encoding.then((task) => {
          one.note = { task };
        }, onFailure);
      }
      one.note = { task: encoding };
    } catch (error) {
      onFailure(error);
    }
    return undefined;
  }

  async #publishDead(
    { topic }: ResolvedIngestTopic,
    messages: readonly Buffered<Note>[],
  ): Promise<void> {
    const { deadLetters } = this.#context;
    if (deadLetters === undefined) return;
    const notes = new Map<OutgoingMessage, DeadNote>();
    for (const one of messages) {
      if (one.note === undefined || "task" in one.note) continue;
      if (one.note.isPublished || one.note.publishRefusal !== undefined) continue;
      notes.set(toDeadLetter(deadLetters.topic, topic, one, one.note.refusal), one.note);
    }
    if (notes.size === 0) return;
    const reasons = await publishOrRefuse(deadLetters, [...notes.keys()]);
    for (const [message, note] of notes) {
      const reason = reasons.get(message);
      if (reason === undefined) note.isPublished = true;
      else note.publishRefusal = reason;
    }
  }

  async #transact(
    ref: TopicRef,
    parts: readonly Part<Note>[],
    messages: readonly Buffered<Note>[],
  ): Promise<void> {
    const { db, enqueue } = this.#context;
    const living: Buffered<Note>[] = [];
    const tasks: EncodedTask[] = [];
    const dead: NewDeadMessage[] = [];
    for (const one of messages) {
      if (one.note === undefined) continue;
      if ("task" in one.note) {
        living.push(one);
        tasks.push(one.note.task);
      } else if (!one.note.isPublished) dead.push(toDead(one, reasonOf(one.note)));
    }
    const ownersOf = (id: number): ReturnType<typeof enqueue.directory.owners> =>
      enqueue.directory.owners(id);
    const results = await db
      .transaction(async (tx) => {
        // Who does not own the partition any more waits for its row, before anything is written.
        // One after another: what is sent behind a ROLLBACK would be committed by itself.
        await Promise.all([setLockTimeout(tx, LOCK_PATIENCE_MS), moveAll(tx, ref, parts)]);
        const bulk = { tasks, isAtomic: false };
        const stored = tasks.length === 0 ? [] : await storeBulks(tx, [bulk], ownersOf);
        if (dead.length > 0) await buryMessages(tx, ref, dead);
        const [found = []] = stored;
        if (found.some((result) => typeof result !== "string")) {
          note(living, found);
          throw new TasksRefused();
        }
        return found;
      })
      .catch((error: unknown) => {
        if (error instanceof OffsetMovedError || error instanceof TasksRefused) throw error;
        throw mapDatabaseError(error, "store messages");
      });
    if (results.length !== tasks.length) throw new Error("some tasks were stored without an id");
  }

  /** The database refuses something of it: the half without it is stored, and it is found. */
  async #divide(
    ref: TopicRef,
    topic: ResolvedIngestTopic,
    parts: readonly Part<Note>[],
    error: unknown,
  ): Promise<Stored> {
    const [first, ...rest] = parts.flatMap((part) => part.messages);
    if (first === undefined) throw error;
    if (rest.length === 0) {
      if (first.note !== undefined && !("task" in first.note)) throw error; // Not even as bytes.
      first.note = refused(`the database refuses the task: ${messageOf(error)}`);
      return await this.store(ref, topic, parts);
    }
    const halves = halve(parts);
    const stored = await this.store(ref, topic, halves[0]);
    const others = await this.store(ref, topic, halves[1]);
    return {
      tasks: sum(stored.tasks, others.tasks),
      dead: stored.dead + others.dead,
    };
  }
}

/**
 * Why those are not published that are not. A topic that somebody deleted must not hold up the jobs
 * behind them; a broker that is away is waited for.
 */
async function publishOrRefuse(
  { sink, topic, isGone }: DeadLetters,
  messages: readonly OutgoingMessage[],
): Promise<ReadonlyMap<OutgoingMessage, string>> {
  try {
    const refused = await sink.publish(messages);
    return new Map(
      refused.map(({ message, reason }) => [message, `${topic} does not take it: ${reason}`]),
    );
  } catch (error) {
    if (!(await isGone())) throw error;
    return new Map(messages.map((message) => [message, `topic ${topic} does not exist`]));
  }
}

const refused = (refusal: string): Note => ({
  refusal: storable(refusal).slice(0, REASON_LENGTH_MAX),
  isPublished: false,
});

/** What its topic does not take is kept in the table, like those without a topic. */
const reasonOf = ({ refusal, publishRefusal }: DeadNote): string =>
  publishRefusal === undefined
    ? refusal
    : `${refusal}; ${publishRefusal}`.slice(0, REASON_LENGTH_MAX);

async function moveAll(tx: Connection, ref: TopicRef, parts: readonly Part<Note>[]): Promise<void> {
  const moved = await Promise.all(parts.map((part) => moveOffset(tx, ref, part)));
  const lost = parts.filter((_, place) => moved[place] !== true);
  if (lost.length > 0) throw new OffsetMovedError(lost.map(({ partition }) => partition));
}

function note(
  living: readonly Buffered<Note>[],
  results: readonly (string | TidemillError)[],
): void {
  living.forEach((one, place) => {
    const result = results[place];
    if (result instanceof TidemillError) one.note = refused(messageOf(result));
  });
}

/** In two, at a message: the parts before it, and those from it on. */
function halve(parts: readonly Part<Note>[]): [Part<Note>[], Part<Note>[]] {
  const total = parts.reduce((sum, part) => sum + part.messages.length, 0);
  let left = Math.floor(total / 2);
  const halves: [Part<Note>[], Part<Note>[]] = [[], []];
  for (const part of parts) {
    const here = part.messages.slice(0, Math.max(0, left));
    const there = part.messages.slice(here.length);
    left -= here.length;
    const middle = here.at(-1)?.nextOffset ?? part.from;
    if (part.messages.length === 0) halves[0].push(part); // Moves its offset alone.
    if (here.length > 0) halves[0].push({ ...part, to: middle, messages: here });
    if (there.length > 0) halves[1].push({ ...part, from: middle, messages: there });
  }
  return halves;
}

function tally(messages: readonly Buffered<Note>[]): Stored {
  const tasks = new Map<string, number>();
  let dead = 0;
  for (const one of messages) {
    if (one.note === undefined || !("task" in one.note)) {
      dead += 1;
      continue;
    }
    const { queue } = one.note.task.shape;
    tasks.set(queue, (tasks.get(queue) ?? 0) + 1);
  }
  return { tasks, dead };
}

function sum(
  some: ReadonlyMap<string, number>,
  others: ReadonlyMap<string, number>,
): Map<string, number> {
  const all = new Map(some);
  for (const [queue, count] of others) all.set(queue, (all.get(queue) ?? 0) + count);
  return all;
}

function toDead({ partition, message }: Buffered<Note>, reason: string): NewDeadMessage {
  const { offset, key, value, headers, timestampMs = Infinity } = message;
  // Producers may say anything.
  const at = timestampMs < TIMESTAMP_MS_MAX ? timestampMs : undefined;
  return { partition, offset, reason, key, value, headers: headersJson(headers), timestampMs: at };
}

function toDeadLetter(
  topic: string,
  from: string,
  { partition, message }: { readonly partition: number; readonly message: KafkaMessage },
  reason: string,
): OutgoingMessage {
  return {
    topic,
    key: message.key,
    value: message.value,
    headers: [
      ...message.headers,
      header("tidemill-dead-reason", reason),
      header("tidemill-dead-topic", from),
      header("tidemill-dead-partition", String(partition)),
      header("tidemill-dead-offset", String(message.offset)),
    ],
  };
}
