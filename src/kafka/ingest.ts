import { Bell } from "../base/bell.ts";
import { systemClock } from "../base/clock.ts";
import { ConfigError, ConflictError, messageOf } from "../base/errors.ts";
import type { Logger } from "../base/log.ts";
import { runLoop, type TurnResult } from "../base/loop.ts";
import type { Stopped } from "../base/stop-signal.ts";
import type { Service } from "../base/supervisor.ts";
import type { Database } from "../db/database.ts";
import type { Tidemill } from "../worker/tidemill.ts";
import { BoundedRun } from "./bounded-run.ts";
import { DeadMessages } from "./dead-messages.ts";
import {
  type KafkaIngestOptions,
  type ResolvedIngestOptions,
  resolveIngestOptions,
} from "./ingest-options.ts";
import { JobEncoder } from "./job-encoder.ts";
import { MessageStore } from "./message-store.ts";
import { KafkaMetrics } from "./metrics.ts";
import type { KafkaClient } from "./source.ts";
import { forgetDeadMessages } from "./sql/dead-messages.ts";
import { type PartitionStatus, TopicLine } from "./topic-line.ts";
import { TopicWatch } from "./topic-watch.ts";

/** What is read of a topic by this process. */
export interface TopicStatus {
  readonly topic: string;
  /** Messages that wait in memory. */
  readonly buffered: number;
  readonly partitions: readonly PartitionStatus[];
}

/** Of the store loops, one each, and of what looks for offsets. */
const SPARE_CONNECTIONS = 1;
const FORGET_MS = 60_000;
const FORGET_COUNT = 10_000;

/**
 * Makes tasks of the messages of Kafka topics, each exactly once. Any number of processes may run
 * one with the same `source` and `group`: the groups divide the partitions among them, and a
 * partition that two of them believe to have is stored by one.
 *
 * Stopping: no message is fetched any more → the transaction under way ends → the groups are told
 * and left. What waits in memory is forgotten; Kafka has it. What has not ended after
 * `drainSeconds`, because a broker says nothing, is left behind: a group then misses its member
 * after `sessionSeconds`, and messages that were not stored are read by the next.
 */
export class KafkaIngest implements AsyncDisposable {
  readonly metrics = new KafkaMetrics();
  /** Messages that are no jobs. */
  readonly deadMessages: DeadMessages;
  readonly #options: ResolvedIngestOptions;
  readonly #logger: Logger;
  readonly #db: Database;
  readonly #lines: readonly TopicLine[];
  readonly #watch: TopicWatch;
  #run: BoundedRun | undefined;
  #stopping: Promise<Stopped> | undefined;

  /** Refuses options that cannot work. Mill and client are the caller's, who closes them after. */
  constructor(mill: Tidemill, client: KafkaClient, options: KafkaIngestOptions) {
    const resolved = resolveIngestOptions(options);
    requireTopicIds(client, resolved);
    const { db, logger, enqueue, tasksEnqueued } = mill.engine;
    this.#options = resolved;
    this.#logger = logger;
    this.#db = db.another(resolved.topics.length + SPARE_CONNECTIONS, logger);
    this.deadMessages = new DeadMessages(db, enqueue, resolved);
    const clock = systemClock;
    this.#watch = new TopicWatch(client, resolved, { clock, logger });
    const { deadLetterTopic } = resolved;
    const store = new MessageStore({
      db: this.#db,
      enqueue,
      encoder: new JobEncoder(enqueue.directory, resolved.queuesPerTenantMax),
      rules: resolved.rules,
      deadLetters:
        deadLetterTopic === undefined
          ? undefined
          : {
              sink: client,
              topic: deadLetterTopic,
              isGone: () => this.#watch.isGone(deadLetterTopic),
            },
    });
    const context = {
      source: client,
      db: this.#db,
      store,
      watch: this.#watch,
      options: resolved,
      clock,
      logger,
      metrics: this.metrics,
      onStored: ({ tasks }: { readonly tasks: ReadonlyMap<string, number> }): void => {
        for (const [queue, count] of tasks) mill.taskMetrics.enqueued.add(count, { queue });
        tasksEnqueued();
      },
    };
    this.#lines = resolved.topics.map((topic) => new TopicLine(topic, context));
  }

  /** Settles when it has ended; rejects when it could not go on. */
  get finished(): Promise<void> {
    return this.#run?.finished ?? Promise.resolve();
  }

  /** Resolves when the topics are there and reading has begun. Refuses to begin without them. */
  async start(): Promise<void> {
    if (this.#run !== undefined || this.#stopping !== undefined) {
      throw new ConflictError("this ingest was started before; make another");
    }
    await this.#watch.ensureAll();
    if (this.#isStopping) return;
    this.#run = new BoundedRun([this.#retention(), this.#topics()]);
  }

  status(): TopicStatus[] {
    return this.#lines.map((line) => ({
      topic: line.topic,
      buffered: line.buffered,
      partitions: line.status(),
    }));
  }

  /** Takes `drainSeconds` at most, and tells how many messages were being stored even then. */
  async stop(): Promise<Stopped> {
    this.#stopping ??= this.#stop();
    return await this.#stopping;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  /** Asked for while it was waited for the topics. */
  get #isStopping(): boolean {
    return this.#stopping !== undefined;
  }

  async #stop(): Promise<Stopped> {
    const { drainSeconds } = this.#options;
    const isOver = (await this.#run?.stop(drainSeconds * 1_000, systemClock)) ?? true;
    const closing = this.#db.close();
    if (isOver) {
      await closing;
      return { givenBack: 0 };
    }
    closing.catch(() => {}); // When its transactions have ended.
    const givenBack = this.#lines.reduce((sum, line) => sum + line.storing, 0);
    this.#logger.warn({ messages: givenBack }, "a Kafka ingest outlived the drain and is left");
    return { givenBack };
  }

  /** All at once: a stop takes as long as the slowest of them. */
  #topics(): Service {
    const run = async (signal: AbortSignal): Promise<void> => {
      await Promise.all(this.#lines.map((line) => line.run(signal)));
    };
    return { name: "kafka topics", run };
  }

  #retention(): Service {
    const { source, deadDays } = this.#options;
    const turn = async (): Promise<TurnResult> => {
      await forgetDeadMessages(this.#db, source, deadDays, FORGET_COUNT);
      return { restMs: FORGET_MS };
    };
    const onFailure = (error: unknown): number => {
      this.#logger.warn({ error: messageOf(error) }, "old dead messages were not removed");
      return FORGET_MS;
    };
    return {
      name: "kafka dead messages",
      run: (signal) => runLoop(turn, { clock: systemClock, bell: new Bell(), onFailure }, signal),
    };
  }
}

/** Without them the offsets of an old topic would be taken for those of a new one. */
function requireTopicIds(
  { knowsTopicIds }: KafkaClient,
  { allowUnnoticedRecreation }: ResolvedIngestOptions,
): void {
  if (knowsTopicIds || allowUnnoticedRecreation) return;
  throw new ConfigError(
    "this client of Kafka cannot tell a topic that was made again from the old one, whose " +
      "offset would skip its first messages: use @platformatic/kafka, or set " +
      "allowUnnoticedRecreation if no topic is ever made again under its name",
  );
}
