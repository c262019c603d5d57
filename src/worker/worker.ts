import { type Clock, chance, systemClock } from "../base/clock.ts";
import { ConflictError, messageOf } from "../base/errors.ts";
import { childLogger, type Logger } from "../base/log.ts";
import type { Stopped } from "../base/stop-signal.ts";
import { Supervisor } from "../base/supervisor.ts";
import { uuidv4 } from "../base/uuid.ts";
import { Registry } from "../cluster/registry.ts";
import { Assembly, CONTROL_CONNECTIONS, canRebuild, DELIVERY_CONNECTIONS } from "./assembly.ts";
import type { ResolvedWorkerOptions } from "./options.ts";
import { type Parts, type Pools, servicesOf } from "./parts.ts";
import type { WorkerContext } from "./worker-context.ts";

/**
 * One member of the cluster in this process: new → starting → running → stopping → stopped. An id
 * belongs to one run; to run again, make another worker.
 *
 * Stop order: no new work is accepted, of any sort → what has begun ends, each consumer is given
 * back as its batch does → what outlives `drainTimeout` is aborted and given back uncounted →
 * renewals, reader, listener, dispatcher → leadership → heartbeats → registration. The registration
 * goes last, because a row that vanishes declares a worker dead.
 */
export class Worker implements AsyncDisposable {
  readonly id: string = uuidv4();
  readonly #context: WorkerContext;
  readonly #options: ResolvedWorkerOptions;
  readonly #clock: Clock = systemClock;
  readonly #logger: Logger;
  #state: "new" | "started" | "stopped" = "new";
  #parts: Parts | undefined;
  #supervisor: Supervisor | undefined;
  #beginning: Promise<void> | undefined;
  #finished: Promise<void> | undefined;
  #stopping: Promise<void> | undefined;

  constructor(context: WorkerContext, options: ResolvedWorkerOptions) {
    this.#context = context;
    this.#options = options;
    this.#logger = childLogger(options.logger ?? context.logger, { worker: this.id });
  }

  /** Names of the consumers (or partitions) that run here now. */
  get assigned(): string[] {
    return this.#parts?.runner.assigned ?? [];
  }

  get isLeader(): boolean {
    return this.#parts?.leader.term !== undefined;
  }

  /** Settles when the worker has ended; rejects when it could not go on. */
  get finished(): Promise<void> {
    return this.#finished ?? Promise.resolve();
  }

  /**
   * Runs until `signal` aborts or `stop` is called; then it resolves once everything is given back.
   * Rejects when the worker cannot start or cannot go on.
   */
  async start(signal?: AbortSignal): Promise<void> {
    await this.begin();
    const stop = (): void => void this.stop().catch(() => {});
    signal?.addEventListener("abort", stop, { once: true });
    if (signal?.aborted === true) stop();
    try {
      await this.#finished;
    } finally {
      signal?.removeEventListener("abort", stop);
    }
  }

  /** Resolves when the worker is registered and running; `start` also waits for its end. */
  async begin(): Promise<void> {
    if (this.#state !== "new") {
      throw new ConflictError("this worker was started before; make a new one to run again");
    }
    this.#state = "started";
    this.#beginning = this.#begin();
    await this.#beginning;
  }

  async #begin(): Promise<void> {
    const { batchConnections, deliverWebhooks, httpJobs } = this.#options;
    const pools = {
      control: this.#context.openDatabase(CONTROL_CONNECTIONS, this.#logger),
      batches: this.#context.openDatabase(batchConnections, this.#logger),
      // Opens nothing until there is a rebuild.
      rebuilds: canRebuild(this.#options, this.#context)
        ? this.#context.openDatabase(batchConnections, this.#logger)
        : undefined,
      deliveries:
        deliverWebhooks === false && httpJobs === false
          ? undefined
          : this.#context.openDatabase(DELIVERY_CONNECTIONS, this.#logger),
    };
    let parts: Parts;
    try {
      parts = this.#assemble(pools);
      this.#parts = parts;
      await parts.listener?.open();
      await parts.election.open();
      await parts.tasks?.register(); // Before the leader hears of us and gives us buckets.
      await parts.registry.register();
      await parts.runner.register();
    } catch (error) {
      await this.#abandon(pools);
      throw error;
    }
    const supervisor = new Supervisor(servicesOf(parts));
    this.#supervisor = supervisor;
    this.#finished = this.#endAfter(supervisor, pools, parts.registry);
    this.#finished.catch(() => {}); // Reported by start().
  }

  /**
   * Stops gracefully; resolves when the worker is gone, whatever it ended with, and tells what of
   * its work it had to give back.
   */
  async stop(): Promise<Stopped> {
    if (this.#state === "new") this.#state = "stopped";
    this.#stopping ??= this.#stop();
    await this.#stopping;
    const { tasks, sender, notices, runner } = this.#parts ?? {};
    const givenBack = [tasks, sender, notices].map((part) => part?.givenBack);
    const counts = [...givenBack, runner?.interrupted];
    return { givenBack: counts.reduce((sum: number, count) => sum + (count ?? 0), 0) };
  }

  /** @internal Takes in no more tasks and deliveries; what has begun goes on until it stops. */
  stopFetching(): void {
    this.#parts?.tasks?.stopClaiming();
    this.#parts?.sender?.stopClaiming();
    this.#parts?.notices?.stopClaiming();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  /** Events were appended by this process: no need to wait for the dispatcher. */
  eventsAppended(): void {
    this.#parts?.reader.announce();
  }

  /** Tasks were enqueued by this process. */
  tasksEnqueued(): void {
    this.#parts?.tasks?.workArrived();
    this.#parts?.housekeeper?.bell.ring();
    this.#parts?.notices?.bell.ring();
  }

  async #stop(): Promise<void> {
    await this.#beginning?.catch(() => {}); // Reported by begin().
    const supervisor = this.#supervisor;
    if (supervisor === undefined) return;
    this.stopFetching(); // The database may take its time, or be away.
    await this.#parts?.registry.drain().catch((error: unknown) => {
      this.#logger.warn({ error: messageOf(error) }, "could not announce the stop");
    });
    await supervisor.stop().catch(() => {}); // Reported by start().
    await this.#finished?.catch(() => {});
  }

  async #endAfter(supervisor: Supervisor, pools: Pools, registry: Registry): Promise<void> {
    try {
      await supervisor.finished;
    } catch (error) {
      this.#logger.error({ error: messageOf(error) }, "worker cannot go on");
      throw error;
    } finally {
      await this.#end(pools, registry);
    }
  }

  async #end(pools: Pools, registry: Registry): Promise<void> {
    this.#state = "stopped";
    await registry.deregister().catch((error: unknown) => {
      this.#logger.warn({ error: messageOf(error) }, "could not remove the registration");
    });
    this.#parts?.jobs?.close();
    await closeAll(pools);
    this.#context.onEnd(this.id);
  }

  async #abandon(pools: Pools): Promise<void> {
    this.#state = "stopped";
    await this.#parts?.election.release().catch(() => {});
    await this.#parts?.listener?.close();
    await this.#parts?.registry.deregister().catch(() => {});
    this.#parts?.jobs?.close();
    await closeAll(pools);
    this.#context.onEnd(this.id);
  }

  #assemble(pools: Pools): Parts {
    const member = {
      id: this.id,
      clock: this.#clock,
      random: chance,
      logger: this.#logger,
      assigned: () => this.assigned,
    };
    return new Assembly(this.#context, this.#options, member).build(pools);
  }
}

async function closeAll({ control, batches, rebuilds, deliveries }: Pools): Promise<void> {
  await Promise.all([control.close(), batches.close(), rebuilds?.close(), deliveries?.close()]);
}
