import { systemClock } from "../base/clock.ts";
import { quoteIdentifier } from "../base/identifier.ts";
import { type Logger, silentLogger } from "../base/log.ts";
import { refuseUnknown } from "../base/options.ts";
import { uuidv7 } from "../base/uuid.ts";
import { ConsumerAdmin } from "../consumers/admin.ts";
import type { Consumer } from "../consumers/consumer.ts";
import { ConsumerMetrics } from "../consumers/metrics.ts";
import { listConsumers } from "../consumers/sql/admin.ts";
import {
  type ConsumerStatus,
  readStatus,
  type Status,
  toConsumerStatus,
} from "../consumers/status.ts";
import { type WaitForOptions, waitForPosition } from "../consumers/wait-for.ts";
import { BEGIN, Database } from "../db/database.ts";
import type { SqlExecutor } from "../db/executor.ts";
import { isPooled } from "../db/listener.ts";
import { assertMigrated, type MigrateResult, migrate } from "../db/migrate.ts";
import {
  type Migration,
  type Partitioning,
  type PartitioningOptions,
  resolvePartitioning,
} from "../db/migrations.ts";
import { Notifier } from "../db/notifier.ts";
import { DeliveryMetrics } from "../delivery/metrics.ts";
import { SubscriptionAdmin } from "../delivery/notices/subscription-admin.ts";
import { WebhookAdmin } from "../delivery/webhook-admin.ts";
import { type AppendOptions, type AppendResult, append } from "../events/append.ts";
import type { NewEvent, PersistedEvent, StreamRef } from "../events/event.ts";
import { assertLogPreconditions } from "../events/preconditions.ts";
import {
  type ReadAllOptions,
  type ReadStreamOptions,
  readAll,
  readStream,
} from "../events/read.ts";
import { readLatestPosition } from "../events/sql/read.ts";
import { concerns, tasksOf } from "../routes/route.ts";
import { ScheduleAdmin } from "../schedules/admin.ts";
import { DeadLetters } from "../tasks/dead-letters.ts";
import { QueueDirectory } from "../tasks/directory.ts";
import { type EnqueueContext, type EnqueueOptions, enqueueTasks } from "../tasks/enqueue.ts";
import { TaskHandle } from "../tasks/handle.ts";
import { TaskMetrics } from "../tasks/metrics.ts";
import type { NewTask, TaskOptions } from "../tasks/new-task.ts";
import type { Queue } from "../tasks/queue.ts";
import { QueueAdmin } from "../tasks/queue-admin.ts";
import { QuotaAdmin } from "../tasks/quota-admin.ts";
import { type ResultOptions, ResultWaiter } from "../tasks/results.ts";
import type { RemoteWork } from "../tasks/runner.ts";
import { type AdminChannels, requireTaskId, TaskAdmin } from "../tasks/task-admin.ts";
import { type ConnectOptions, changesChannel, openDatabase, tasksChannel } from "./connect.ts";
import { resolveWorkerOptions, type WorkerOptions } from "./options.ts";
import { runToHead } from "./run-to-head.ts";
import { openTenants, type Tenants, type TenantsOptions } from "./tenants.ts";
import { Worker } from "./worker.ts";
import {
  type ConnectionFacts,
  connectionContext,
  type Engine,
  type WorkerContext,
} from "./worker-context.ts";

/** The entry to everything: appends, reads, workers and administration over one database. */
export class Tidemill implements AsyncDisposable {
  /** Pause, resume, rewind, skip, retire. */
  readonly consumers: ConsumerAdmin;
  readonly metrics = new ConsumerMetrics();
  readonly taskMetrics = new TaskMetrics();
  readonly deliveryMetrics = new DeliveryMetrics();
  /** Get, list, cancel, retry, why. */
  readonly tasks: TaskAdmin;
  /** List, pause, resume, limits, keys, ring. */
  readonly queues: QueueAdmin;
  /** Put, list, pause, resume, run now. */
  readonly schedules: ScheduleAdmin;
  /** List, edit, redrive, purge. */
  readonly deadLetters: DeadLetters;
  /** Endpoints and their secrets, deliveries, redeliver. */
  readonly webhooks: WebhookAdmin;
  /** Who is told that work waits. */
  readonly subscriptions: SubscriptionAdmin;
  /** What tenants may have waiting at servers, and how fast they may create. */
  readonly quotas: QuotaAdmin;
  readonly #url: string;
  readonly #options: ConnectOptions;
  readonly #db: Database;
  readonly #logger: Logger;
  readonly #notifier: Notifier | undefined;
  readonly #facts: ConnectionFacts;
  readonly #workers = new Set<Worker>();
  readonly #enqueue: EnqueueContext;
  readonly #results: ResultWaiter;
  readonly #channels: AdminChannels;

  private constructor(url: string, options: ConnectOptions, db: Database, facts: ConnectionFacts) {
    this.#url = url;
    this.#options = options;
    this.#db = db;
    this.#facts = facts;
    this.#logger = options.logger ?? silentLogger;
    const { notifyChannel } = options;
    this.#notifier =
      notifyChannel === undefined ? undefined : new Notifier(db, notifyChannel, this.#logger);
    this.consumers = new ConsumerAdmin(db, changesChannel(db.names));
    const channel = tasksChannel(db.names);
    this.#enqueue = {
      db,
      directory: new QueueDirectory(db),
      channel,
      notifier: new Notifier(db, channel, this.#logger),
    };
    this.schedules = new ScheduleAdmin(this.#enqueue, changesChannel(db.names), (queue) =>
      this.#enqueued(queue, 1),
    );
    this.#results = new ResultWaiter(() => db, systemClock);
    this.#channels = { changes: changesChannel(db.names), tasks: channel };
    this.tasks = new TaskAdmin(db, this.#channels);
    this.queues = new QueueAdmin(db, this.#enqueue.directory, this.#channels);
    this.deadLetters = new DeadLetters(db, this.#channels);
    this.webhooks = new WebhookAdmin(db);
    this.subscriptions = new SubscriptionAdmin(db);
    this.quotas = new QuotaAdmin(db);
  }

  /** Connects, and refuses a server or a schema on which the guarantees would not hold. */
  static async connect(url: string | undefined, options: ConnectOptions = {}): Promise<Tidemill> {
    const db = openDatabase(url, options);
    try {
      const isBehindPooler = await db.withConnection(isPooled);
      if ((options.preparedStatements ?? "auto") === "auto") {
        db.usePreparedStatements(!isBehindPooler);
      }
      const settings = await assertMigrated(db);
      const sequence = await assertLogPreconditions(db);
      const stored = settings.get("partitioning");
      const partitioning =
        stored === undefined ? resolvePartitioning() : (JSON.parse(stored) as Partitioning);
      return new Tidemill(url ?? "", options, db, { sequence, partitioning, isBehindPooler });
    } catch (error) {
      await db.close();
      throw error;
    }
  }

  /** Creates or upgrades the tables. Safe to call from several processes at once. */
  static async migrate(
    url: string | undefined,
    options: ConnectOptions & MigrationOptions = {},
  ): Promise<MigrateResult> {
    const { partitioning, dryRun, onMigration, ...connect } = options;
    // Building an index on a large table takes as long as it takes.
    const db = openDatabase(url, { queryTimeout: 2 ** 31 - 1, ...connect });
    try {
      return await migrate(db, {
        ...(partitioning === undefined ? {} : { partitioning: resolvePartitioning(partitioning) }),
        ...(dryRun === undefined ? {} : { dryRun }),
        ...(onMigration === undefined ? {} : { onMigration }),
      });
    } finally {
      await db.close();
    }
  }

  /** Appends events to one stream: all of them, in order, or none. */
  async append(
    stream: StreamRef,
    events: readonly NewEvent[],
    options?: AppendOptions,
  ): Promise<AppendResult> {
    const { notifyChannel, routes = [] } = this.#options;
    const isRouted = events.some((event) =>
      routes.some((one) => concerns(one, stream, event.type)),
    );
    if (isRouted) return await this.#appendRouted(stream, events, options);
    const context = { db: this.#db, notifyChannel, notifier: this.#notifier };
    const result = await append(context, stream, events, options);
    if (options?.tx === undefined) for (const worker of this.#workers) worker.eventsAppended();
    return result;
  }

  /** The events and the tasks that they cause, in one transaction: both, or neither. */
  async #appendRouted(
    stream: StreamRef,
    events: readonly NewEvent[],
    options: AppendOptions = {},
  ): Promise<AppendResult> {
    const { notifyChannel, routes = [] } = this.#options;
    const named = events.map((event) => ({ ...event, id: event.id ?? uuidv7() }));
    const write = async (tx: SqlExecutor): Promise<AppendResult> => {
      const context = { db: this.#db, notifyChannel, notifier: this.#notifier };
      const result = await append(context, stream, named, { ...options, tx });
      const stored = named.map((event, at) => ({ ...event, position: result.positions[at] ?? 0n }));
      for (const [queue, tasks] of tasksOf(routes, stream, stored)) {
        const ids = await enqueueTasks(this.#enqueue, queue, tasks, { tx });
        this.taskMetrics.enqueued.add(ids.length, { queue: queue.name });
      }
      return result;
    };
    return await (options.tx === undefined ? this.transaction(write) : write(options.tx));
  }

  /** Runs `work` in one transaction: pass its `tx` to append, and to your own statements. */
  async transaction<T>(work: (tx: SqlExecutor) => Promise<T>): Promise<T> {
    const result = await this.#db.transaction((tx) => work(tx.executor), { begin: BEGIN });
    for (const worker of this.#workers) {
      worker.eventsAppended();
      worker.tasksEnqueued();
    }
    return result;
  }

  /** Stores a task: in the caller's transaction or durably when this resolves. */
  async enqueue<Payload, Result, Input>(
    queue: Queue<Payload, Result, Input> | string,
    payload: Input | Uint8Array,
    options: TaskOptions & EnqueueOptions = {},
  ): Promise<TaskHandle<Result>> {
    const { tx, ...task } = options;
    const [handle] = await this.enqueueMany(
      queue,
      [{ ...task, payload }],
      tx === undefined ? {} : { tx },
    );
    if (handle === undefined) throw new Error("a task was enqueued without an id");
    return handle;
  }

  /** Stores many tasks in one statement: all of them, in order, or none. */
  async enqueueMany<Payload, Result, Input>(
    queue: Queue<Payload, Result, Input> | string,
    tasks: readonly NewTask<Input>[],
    options: EnqueueOptions = {},
  ): Promise<TaskHandle<Result>[]> {
    refuseUnknown("enqueue", options, ["tx"]);
    const ids = await enqueueTasks(this.#enqueue, queue, tasks, options);
    const name = typeof queue === "string" ? queue : queue.name;
    if (options.tx === undefined) this.#enqueued(name, ids.length);
    else this.taskMetrics.enqueued.add(ids.length, { queue: name });
    return ids.map((id) => new TaskHandle<Result>(id, name, this.#results));
  }

  #enqueued(queue: string, count: number): void {
    this.taskMetrics.enqueued.add(count, { queue });
    for (const worker of this.#workers) worker.tasksEnqueued();
  }

  /**
   * What single tenants may do, for servers that act for many of them. Behind the second wall if
   * there is one; with `requireWall` a database without is refused, else it is logged.
   */
  async tenants(options: TenantsOptions = {}): Promise<Tenants> {
    return await openTenants(
      {
        db: this.#db,
        enqueue: this.#enqueue,
        channels: this.#channels,
        logger: this.#logger,
        onEnqueued: (queue, count) => this.#enqueued(queue, count),
      },
      options,
    );
  }

  /** Refuses a database that cannot be reached, or whose tables this version cannot work with. */
  async assertReady(): Promise<void> {
    await assertMigrated(this.#db);
  }

  /** The result of a task once it has completed; rejects with TaskFailedError when it will not. */
  async result(taskId: string, options: ResultOptions = {}): Promise<unknown> {
    requireTaskId(taskId);
    return await this.#results.wait(taskId, options);
  }

  async readStream(stream: StreamRef, options?: ReadStreamOptions): Promise<PersistedEvent[]> {
    return await readStream(this.#db, stream, options);
  }

  async readAll(options?: ReadAllOptions): Promise<PersistedEvent[]> {
    return await readAll(this.#db, options);
  }

  /** The highest position that is visible now; 0 in an empty log. */
  async latestPosition(): Promise<bigint> {
    return await readLatestPosition(this.#db);
  }

  /** A worker that has not started. `start(signal)` runs it to its end. */
  worker(options: WorkerOptions): Worker {
    return this.#worker(options);
  }

  #worker(options: WorkerOptions, remote?: RemoteWork): Worker {
    const resolved = resolveWorkerOptions(options, this.#options.compat, remote);
    const worker = new Worker(this.#workerContext(), resolved);
    this.#workers.add(worker);
    return worker;
  }

  /** A worker that is registered and running when this resolves. */
  async startWorker(options: WorkerOptions): Promise<Worker> {
    const worker = this.worker(options);
    await worker.begin();
    return worker;
  }

  /** @internal A worker whose tasks are run by others, through this process. */
  async startRemoteWorker(options: WorkerOptions, remote: RemoteWork): Promise<Worker> {
    const worker = this.#worker(options, remote);
    await worker.begin();
    return worker;
  }

  /**
   * Handles everything up to the present end of the log, then returns its position. Works beside
   * other workers: whoever owns a consumer handles its events.
   */
  async runToHead(options: WorkerOptions & WaitForOptions): Promise<bigint> {
    return await runToHead(this, options);
  }

  /** Resolves when the consumer has handled what was appended: read your own writes. */
  async waitFor(
    consumer: string | Consumer,
    appended: Pick<AppendResult, "position">,
    options: WaitForOptions = {},
  ): Promise<void> {
    const name = typeof consumer === "string" ? consumer : consumer.name;
    await waitForPosition(this.consumers, name, appended.position, {
      ...options,
      clock: systemClock,
    });
  }

  async listConsumers(): Promise<ConsumerStatus[]> {
    return (await listConsumers(this.#db)).map(toConsumerStatus);
  }

  /** Workers, leader, assignments, lag and open gaps, read from the tables. */
  async status(): Promise<Status> {
    return await readStatus(this.#db, this.#facts.sequence);
  }

  /** What a server builds on. Applications need none of it. */
  get engine(): Engine {
    return {
      db: this.#db,
      logger: this.#logger,
      enqueue: this.#enqueue,
      tasksEnqueued: () => {
        for (const worker of this.#workers) worker.tasksEnqueued();
      },
    };
  }

  /** Stops the workers started here, then closes the connections. */
  async close(): Promise<void> {
    await Promise.all([...this.#workers].map((worker) => worker.stop()));
    this.#results.close();
    await this.#notifier?.settled();
    await this.#enqueue.notifier.settled();
    await this.#db.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  #workerContext(): WorkerContext {
    const { names } = this.#db;
    return {
      ...connectionContext(this.#db, this.#url, this.#options, this.#facts),
      logger: this.#logger,
      metrics: this.metrics,
      tasks: {
        directory: this.#enqueue.directory,
        metrics: this.taskMetrics,
        channel: this.#enqueue.channel,
        sequence: `${quoteIdentifier(names.schema)}.task_numbers`,
        isPooled: this.#facts.isBehindPooler,
      },
      deliveryMetrics: this.deliveryMetrics,
      onEnd: (id) => {
        for (const worker of this.#workers) if (worker.id === id) this.#workers.delete(worker);
      },
    };
  }
}

export interface MigrationOptions {
  readonly partitioning?: PartitioningOptions;
  /** Says what would be applied and applies nothing. */
  readonly dryRun?: boolean;
  readonly onMigration?: (migration: Migration) => void;
}
