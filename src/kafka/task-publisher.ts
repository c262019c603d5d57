import { exponentialMs } from "../base/backoff.ts";
import { Bell } from "../base/bell.ts";
import { systemClock } from "../base/clock.ts";
import { ConfigError, ConflictError, messageOf, NotFoundError } from "../base/errors.ts";
import type { Logger } from "../base/log.ts";
import { runLoop, type TurnResult } from "../base/loop.ts";
import type { Stopped } from "../base/stop-signal.ts";
import type { Service } from "../base/supervisor.ts";
import { uuidv7 } from "../base/uuid.ts";
import { readFrontierHolders } from "../consumers/sql/frontier.ts";
import type { Connection, Database } from "../db/database.ts";
import { isUnavailable } from "../db/sqlstate.ts";
import type { Tidemill } from "../worker/tidemill.ts";
import { BoundedRun } from "./bounded-run.ts";
import { toEndedTask } from "./ended-task.ts";
import {
  type PublishTasksOptions,
  type ResolvedPublishTasks,
  resolvePublishTasks,
  tellOf,
} from "./publish-tasks.ts";
import { keep, RefusedMessages } from "./refused-messages.ts";
import { SettledEnds } from "./settled-ends.ts";
import type { KafkaClient, OutgoingMessage, RefusedMessage } from "./source.ts";
import { type EndRow, endSequence, forgetEnds } from "./sql/task-ends.ts";
import {
  type Hold,
  holdPublication,
  intendPublication,
  movePublication,
  readPublications,
  registerPublication,
  releaseHold,
  renewHold,
} from "./sql/task-publications.ts";
import { betweenEnds } from "./task-publications.ts";
import { TaskPublisherMetrics } from "./task-publisher-metrics.ts";

/** Beside the one that reads: of the transaction that moves the position, and of renewals. */
const CONNECTIONS = 2;
const ANSWER_MS = 10_000;
/** Between looks: while something comes, and the longest while nothing does. */
const LOOK_MS = 50;
const QUIET_LOOK_MS_MAX = 1_000;
/** While a transaction is waited for. */
const HELD_LOOK_MS = 10;
const LONG_HELD_LOOK_MS = 50;
const LONG_HELD_MS = 1_000;
const ALARM_AFTER_MS = 10_000;
const ALARM_EVERY_MS = 30_000;

/** Somebody else publishes now. */
class HoldLost extends Error {}

/**
 * Publishes ends of tasks to Kafka: each at least once, those of one key in the order of their
 * ends, however they ended. Any number of processes may run one under the same name: one of them
 * publishes, and when it stops or dies another goes on.
 *
 * States: registered, ends are kept from now on → waiting, another one publishes → holding: read
 * what is settled behind the position → intend, durably → publish → move the position, keep what
 * was refused → holding. Each write compares holder, generation and position.
 *
 * When the process dies while it holds, the hold ends after `holdSeconds`, and whoever takes it
 * publishes again what was intended: everything behind the position, in the same order, under the
 * same positions. The same happens, at once, when it stops and a broker does not answer for
 * `drainSeconds`. docs/adr/0023-kafka-outbox.md has every line of it.
 */
export class KafkaTaskPublisher implements AsyncDisposable {
  readonly metrics = new TaskPublisherMetrics();
  /** Messages that no broker takes. */
  readonly refused: RefusedMessages;
  readonly #options: ResolvedPublishTasks;
  readonly #client: KafkaClient;
  readonly #logger: Logger;
  readonly #db: Database;
  readonly #holder = uuidv7();
  readonly #ends: SettledEnds;
  readonly #bell = new Bell();
  readonly #stopping = new AbortController();
  #connection: Connection | undefined;
  #hold: Hold | undefined;
  #quietTurns = 0;
  #alarmedAtMs = -Infinity;
  #underWay = 0;
  #run: BoundedRun | undefined;
  #stopped: Promise<Stopped> | undefined;

  /** Refuses options that cannot work. Mill and client are the caller's, who closes them after. */
  constructor(mill: Tidemill, client: KafkaClient, options: PublishTasksOptions) {
    this.#options = resolvePublishTasks(options);
    const { db, logger } = mill.engine;
    this.#client = client;
    this.#logger = logger;
    this.#db = db.another(CONNECTIONS, logger);
    this.refused = new RefusedMessages(mill, client);
    const { batchTasks: rowsMax, batchBytes: bytesMax } = this.#options;
    const sequence = endSequence(db.names.splices["schema"] ?? "");
    this.#ends = new SettledEnds({ sequence, rowsMax, bytesMax, clock: systemClock });
  }

  /** Settles when it has ended; rejects when it could not go on. */
  get finished(): Promise<void> {
    return this.#run?.finished ?? Promise.resolve();
  }

  /**
   * Resolves when ends are kept: every task whose end begins after that is published. Refuses to
   * begin without its topic; a broker that is away is waited for.
   */
  async start(): Promise<void> {
    if (this.#run !== undefined || this.#stopped !== undefined) {
      throw new ConflictError("this publisher was started before; make another");
    }
    await this.#requireTopic();
    const { signal } = this.#stopping;
    await betweenEnds(() => registerPublication(this.#db, this.#options), signal);
    if (signal.aborted) return;
    this.#run = new BoundedRun([this.#renewer(), this.#publisher()]);
  }

  /**
   * What is being published is published, within `drainSeconds`; else it tells how many ends
   * another process publishes again. That one may take over at once.
   */
  async stop(): Promise<Stopped> {
    this.#stopping.abort();
    this.#stopped ??= this.#stop();
    return await this.#stopped;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  async #stop(): Promise<Stopped> {
    const { name, drainSeconds } = this.#options;
    const isOver = (await this.#run?.stop(drainSeconds * 1_000, systemClock)) ?? true;
    const givenBack = isOver ? 0 : this.#underWay;
    const hold = this.#hold;
    if (hold !== undefined) await releaseHold(this.#db, hold).catch(() => {});
    this.#forget();
    const closing = this.#db.close();
    if (isOver) await closing;
    else {
      closing.catch(() => {}); // When its statements have been answered.
      const fields = { publication: name, tasks: givenBack };
      this.#logger.warn(fields, "a Kafka publisher outlived the drain and is left");
    }
    return { givenBack };
  }

  async #requireTopic(): Promise<void> {
    const { topic } = this.#options;
    if (typeof topic !== "string") return;
    try {
      if ((await this.#client.describeTopics([topic])).has(topic)) return;
    } catch (error) {
      if (!isUnavailable(error)) throw error;
      this.#logger.warn({ error: messageOf(error), topic }, "Kafka is away; tasks are kept for it");
      return;
    }
    throw new ConfigError(`topic ${topic} does not exist; make it`);
  }

  #publisher(): Service {
    const onFailure = (error: unknown, failures: number): number => {
      this.#forget();
      if (error instanceof HoldLost) return 0;
      if (error instanceof NotFoundError) throw error;
      const { name } = this.#options;
      this.metrics.failures.add(1, { publication: name });
      this.#logger.warn(
        { publication: name, error: messageOf(error), failures },
        "publishing tasks failed; it is tried again",
      );
      return exponentialMs(failures, 100, 5_000);
    };
    const options = { clock: systemClock, bell: this.#bell, onFailure };
    return { name: "kafka tasks", run: (signal) => runLoop(() => this.#turn(), options, signal) };
  }

  async #turn(): Promise<TurnResult> {
    const connection = await this.#connected();
    const hold = this.#hold ?? (await this.#take(connection));
    if ("waitMs" in hold) return { restMs: hold.waitMs };
    const rows = await this.#ends.read(connection, hold.position);
    const last = rows.at(-1);
    if (last === undefined) return await this.#rest(connection);
    this.#underWay = rows.length;
    try {
      await this.#publish(connection, hold, rows, BigInt(last.position));
    } finally {
      this.#underWay = 0;
    }
    this.#quietTurns = 0;
    return "again";
  }

  async #take(connection: Connection): Promise<Hold | { readonly waitMs: number }> {
    const { name, holdSeconds } = this.#options;
    const answer = await holdPublication(connection, name, this.#holder, holdSeconds);
    if ("waitSeconds" in answer) {
      const { waitSeconds } = answer;
      if (waitSeconds === undefined) {
        throw new NotFoundError(`publication ${JSON.stringify(name)} was removed`);
      }
      return { waitMs: Math.min(QUIET_LOOK_MS_MAX, Math.max(LOOK_MS, waitSeconds * 1000)) };
    }
    const { intended, ...hold } = answer;
    this.#logger.info(
      {
        publication: name,
        position: String(hold.position),
        ...(intended === undefined ? {} : { perhapsPublishedTo: String(intended) }),
      },
      "publishing tasks",
    );
    this.#hold = hold;
    this.metrics.isPublishing.set(1, { publication: name });
    return hold;
  }

  async #publish(
    connection: Connection,
    hold: Hold,
    rows: readonly EndRow[],
    to: bigint,
  ): Promise<void> {
    const { messages, refused, others } = this.#tell(rows);
    const { name, holdSeconds } = this.#options;
    if (!(await intendPublication(connection, hold, to, holdSeconds))) throw new HoldLost();
    const publishing = messages.length === 0 ? [] : await this.#client.publish(messages);
    const kept = [...refused, ...publishing].toSorted(byPosition);
    const isMoved = await this.#db.transaction(async (tx) => {
      if (!(await movePublication(tx, hold, to))) return false;
      await keep(tx, name, kept);
      return true;
    });
    if (!isMoved) throw new HoldLost();
    this.#hold = { ...hold, position: to };
    this.#count("refused", kept.length);
    this.#count("published", messages.length - publishing.length);
    this.#count("left_out", others);
    for (const { message, reason } of kept) {
      const task = headerOf(message, "tidemill-task-id");
      const fields = { publication: name, topic: message.topic, task, reason };
      this.#logger.error(fields, "a message was refused");
    }
    await forgetEnds(connection, to);
  }

  #tell(rows: readonly EndRow[]): {
    readonly messages: readonly OutgoingMessage[];
    readonly refused: readonly RefusedMessage[];
    /** How many are not told. */
    readonly others: number;
  } {
    const { queues } = this.#options;
    const messages: OutgoingMessage[] = [];
    const refused: RefusedMessage[] = [];
    for (const row of rows) {
      // Others may be kept for other publications.
      if (queues !== undefined && !queues.includes(row.queue)) continue;
      const told = tellOf(toEndedTask(row), this.#options);
      if (told === undefined) continue;
      if ("message" in told) refused.push(told);
      else messages.push(told);
    }
    return { messages, refused, others: rows.length - messages.length - refused.length };
  }

  #count(outcome: string, count: number): void {
    if (count > 0) this.metrics.ends.add(count, { publication: this.#options.name, outcome });
  }

  async #rest(connection: Connection): Promise<TurnResult> {
    const { heldMs } = this.#ends;
    this.metrics.heldSeconds.set(heldMs / 1000, { publication: this.#options.name });
    if (heldMs === 0 && this.#ends.fence === undefined) {
      this.#quietTurns += 1;
      return { restMs: Math.min(QUIET_LOOK_MS_MAX, LOOK_MS * 2 ** Math.min(10, this.#quietTurns)) };
    }
    await this.#alarmIfDue(connection, heldMs);
    return { restMs: heldMs > LONG_HELD_MS ? LONG_HELD_LOOK_MS : HELD_LOOK_MS, isDeaf: true };
  }

  async #alarmIfDue(connection: Connection, heldMs: number): Promise<void> {
    const nowMs = systemClock.now();
    const { fence } = this.#ends;
    if (heldMs < ALARM_AFTER_MS || nowMs - this.#alarmedAtMs < ALARM_EVERY_MS) return;
    if (fence === undefined) return;
    this.#alarmedAtMs = nowMs;
    const holders = await readFrontierHolders(connection, fence);
    const publication = this.#options.name;
    this.#logger.warn(
      { publication, heldMs, holders },
      "an open transaction holds up ends of tasks",
    );
  }

  /** Keeps the hold while a broker is slow, and says how much waits. */
  #renewer(): Service {
    const { name, holdSeconds } = this.#options;
    const everyMs = (holdSeconds * 1000) / 3;
    const turn = async (): Promise<TurnResult> => {
      await this.#renew();
      const [found] = await readPublications(this.#db, name);
      const labels = { publication: name };
      this.metrics.waiting.set(Number(found?.waiting ?? 0), labels);
      this.metrics.waitingSeconds.set(found?.waiting_seconds ?? 0, labels);
      return { restMs: everyMs };
    };
    const onFailure = (error: unknown, failures: number): number => {
      this.#logger.warn({ publication: name, error: messageOf(error) }, "a hold was not renewed");
      return Math.min(everyMs, exponentialMs(failures, 100, 1_000));
    };
    const options = { clock: systemClock, bell: new Bell(), onFailure };
    return { name: "kafka tasks hold", run: (signal) => runLoop(turn, options, signal) };
  }

  async #renew(): Promise<void> {
    const hold = this.#hold;
    if (hold === undefined) return;
    if (await renewHold(this.#db, hold, this.#options.holdSeconds)) return;
    if (this.#hold?.generation !== hold.generation) return;
    this.#hold = undefined;
    this.#bell.ring();
  }

  async #connected(): Promise<Connection> {
    if (this.#connection !== undefined) return this.#connection;
    const connection = await this.#db.connect("kafka tasks", { timeoutMs: ANSWER_MS });
    connection.client.once("end", () => {
      if (this.#connection === connection) this.#forget();
    });
    this.#connection = connection;
    return connection;
  }

  /** What is known dies with the connection: a crash of the server may take back what was seen. */
  #forget(): void {
    const connection = this.#connection;
    this.#connection = undefined;
    this.#hold = undefined;
    this.#ends.forget();
    this.metrics.isPublishing.set(0, { publication: this.#options.name });
    void connection?.close();
  }
}

const byPosition = (one: RefusedMessage, other: RefusedMessage): number =>
  Number(positionOf(one) - positionOf(other));

const positionOf = ({ message }: RefusedMessage): bigint =>
  BigInt(headerOf(message, "tidemill-end-position") ?? 0);

const headerOf = ({ headers }: OutgoingMessage, name: string): string | undefined =>
  headers.find((one) => one.name === name)?.value.toString();
