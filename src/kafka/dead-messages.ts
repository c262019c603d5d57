import { InvalidInputError, NotFoundError } from "../base/errors.ts";
import { refuseUnknown, requireNumber } from "../base/options.ts";
import type { Database } from "../db/database.ts";
import { type EnqueueContext, enqueueTasks } from "../tasks/enqueue.ts";
import { readHeaders } from "./headers.ts";
import type { ResolvedIngestOptions } from "./ingest-options.ts";
import { readJob } from "./job.ts";
import type { KafkaHeader } from "./source.ts";
import { type DeadMessageRow, listDeadMessages, takeDeadMessages } from "./sql/dead-messages.ts";

/** A message that could not become a task. */
export interface DeadMessage {
  readonly id: string;
  readonly topic: string;
  readonly topicId: string;
  readonly partition: number;
  readonly offset: bigint;
  readonly reason: string;
  readonly key: Buffer | undefined;
  readonly value: Buffer | undefined;
  readonly headers: readonly KafkaHeader[];
  /** When it was written, as Kafka has it. */
  readonly messageAt: Date | undefined;
  readonly createdAt: Date;
}

export interface ListDeadMessagesOptions {
  /** Those behind this id. Defaults to the first. */
  readonly after?: string;
  /** Defaults to 100. */
  readonly limit?: number;
}

const LIST_MAX = 1_000;
const TAKE_MAX = 1_000;

/** What a person may do with messages that are kept in the table. */
export class DeadMessages {
  readonly #db: Database;
  readonly #enqueue: EnqueueContext;
  readonly #options: ResolvedIngestOptions;

  constructor(db: Database, enqueue: EnqueueContext, options: ResolvedIngestOptions) {
    this.#db = db;
    this.#enqueue = enqueue;
    this.#options = options;
  }

  /** The oldest first. */
  async list(options: ListDeadMessagesOptions = {}): Promise<DeadMessage[]> {
    refuseUnknown("list", options, ["after", "limit"]);
    const { after = "0", limit = 100 } = options;
    requireIds([after]);
    requireNumber("limit", limit, { min: 1, max: LIST_MAX, integer: true });
    const rows = await listDeadMessages(this.#db, this.#options.source, after, limit);
    return rows.map(toDeadMessage);
  }

  /**
   * Tries again, after whatever was wrong was mended: all of them become tasks and are gone from
   * the table, or none. Gives the ids of the tasks in the order of the messages; one that
   * is named twice is one.
   */
  async redrive(ids: readonly string[]): Promise<string[]> {
    requireIds(ids);
    const taskIds = await this.#db.transaction(async (tx) => {
      const rows = await takeDeadMessages(tx, this.#options.source, ids);
      // Each one that was there, once, whatever was given: "17" and "017" are one message.
      const byId = new Map(rows.map((row) => [BigInt(row.id), row]));
      const made: string[] = [];
      for (const id of new Set(ids.map(BigInt))) {
        const row = byId.get(id);
        if (row === undefined) throw new NotFoundError(`there is no dead message ${id}`);
        const { queue, task } = this.#read(row);
        const enqueued = await enqueueTasks(this.#enqueue, queue, [task], { tx: tx.executor });
        made.push(...enqueued);
      }
      return made;
    });
    return taskIds;
  }

  /** Removes them for good; those that are not there are no failure. Gives how many were. */
  async purge(ids: readonly string[]): Promise<number> {
    requireIds(ids);
    return (await takeDeadMessages(this.#db, this.#options.source, ids)).length;
  }

  #read(row: DeadMessageRow): Exclude<ReturnType<typeof readJob>, { refusal: string }> {
    const { topics, rules } = this.#options;
    const message = toDeadMessage(row);
    const topic = topics.find((one) => one.topic === row.topic);
    const placed = { ...message, timestampMs: message.messageAt?.getTime() };
    const job = readJob(placed, { ...message, priority: topic?.priority ?? "normal" }, rules);
    if (!("refusal" in job)) return job;
    throw new InvalidInputError(`message ${row.id} is still no job: ${job.refusal}`);
  }
}

function requireIds(ids: readonly string[]): void {
  if (!Array.isArray(ids) || ids.length > TAKE_MAX) {
    throw new InvalidInputError(`give a list of at most ${TAKE_MAX} ids`);
  }
  for (const id of ids as readonly unknown[]) {
    if (typeof id === "string" && /^\d{1,18}$/.test(id)) continue;
    throw new InvalidInputError(`${JSON.stringify(id)} is not the id of a dead message`);
  }
}

function toDeadMessage(row: DeadMessageRow): DeadMessage {
  return {
    id: row.id,
    topic: row.topic,
    topicId: row.topic_id,
    partition: row.partition,
    offset: BigInt(row.message_offset),
    reason: row.reason,
    key: row.key ?? undefined,
    value: row.value ?? undefined,
    headers: readHeaders(row.headers),
    messageAt: row.message_at ?? undefined,
    createdAt: row.created_at,
  };
}
