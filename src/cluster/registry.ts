import { exponentialMs } from "../base/backoff.ts";
import { Bell } from "../base/bell.ts";
import type { Clock } from "../base/clock.ts";
import { ConflictError, messageOf, TidemillError } from "../base/errors.ts";
import type { Logger } from "../base/log.ts";
import { runLoop, type TurnResult } from "../base/loop.ts";
import type { Service } from "../base/supervisor.ts";
import type { Connection, Database } from "../db/database.ts";
import { announceChange } from "./sql/changes.ts";
import {
  addQueues,
  beatHeart,
  deleteWorker,
  insertWorker,
  markDraining,
  type Registration,
  removeQueues,
  removeStaleWorkers,
  type TenantService,
  writeService,
} from "./sql/workers.ts";

/**
 * This worker's registration is gone: others took it for dead, or a person removed it. It must not
 * run on invisibly; start a new worker, which gets a new id.
 */
export class RegistrationLostError extends TidemillError {
  readonly code = "TM_REGISTRATION_LOST";
  readonly retryable = false;
}

export interface RegistryOptions {
  /** Where heartbeats go: past the pooler, when there is one. */
  readonly url: string;
  readonly heartbeatIntervalMs: number;
  readonly heartbeatTimeoutMs: number;
  readonly changesChannel: string;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Shown to people while the worker lives, and for a day after. */
  readonly load: () => object;
}

/** A single miss may be a race with a clean-up that is being undone; two in a row are not. */
const MISSES_MAX = 2;

/**
 * One row per process incarnation: registered → active → draining → gone. Heartbeats have a
 * connection of their own, so that a full pool cannot fake a death. Dying anywhere leaves a row
 * whose heartbeat ages; the leader frees what it owned and the row is removed at twice the timeout.
 */
export class Registry implements Service {
  readonly name = "registry";
  readonly #db: Database;
  readonly #worker: Registration;
  readonly #options: RegistryOptions;
  #connection: Connection | undefined;
  #isDraining = false;
  #misses = 0;
  #trustedUntil = 0;

  constructor(db: Database, worker: Registration, options: RegistryOptions) {
    this.#db = db;
    this.#worker = worker;
    this.#options = options;
  }

  /**
   * Whether others must still take this worker for alive. Ends before they may take over, because
   * it counts from before the last heartbeat was sent.
   */
  get isTrusted(): boolean {
    return this.#options.clock.now() < this.#trustedUntil;
  }

  async register(): Promise<void> {
    const { heartbeatTimeoutMs, changesChannel, logger, clock } = this.#options;
    const ageSeconds = (2 * heartbeatTimeoutMs) / 1000;
    await this.#db
      .transaction((tx) => removeStaleWorkers(tx, ageSeconds, this.#worker.workerId))
      .then(
        (removed) => {
          if (removed.length > 0) logger.info({ removed }, "cleaned stale worker registrations");
        },
        (error: unknown) => {
          logger.warn({ error: messageOf(error) }, "could not clean stale worker registrations");
        },
      );
    const startedAt = clock.now();
    await this.#db.transaction(async (tx) => {
      await insertWorker(tx, this.#worker);
      await announceChange(tx, changesChannel);
    });
    this.#trustedUntil = startedAt + heartbeatTimeoutMs;
    logger.info({ consumers: this.#worker.capabilities }, "worker registered");
  }

  async run(signal: AbortSignal): Promise<void> {
    const { clock, logger, heartbeatIntervalMs } = this.#options;
    const onFailure = (error: unknown, failures: number): number => {
      if (error instanceof RegistrationLostError) throw error;
      logger.warn({ error: messageOf(error), failures }, "heartbeat failed");
      this.#dropConnection();
      return exponentialMs(failures, Math.min(100, heartbeatIntervalMs), heartbeatIntervalMs);
    };
    try {
      await runLoop(() => this.#beat(), { clock, bell: new Bell(), onFailure }, signal);
    } finally {
      this.#dropConnection();
    }
  }

  async #beat(): Promise<TurnResult> {
    const { clock, logger, heartbeatIntervalMs, heartbeatTimeoutMs, load } = this.#options;
    this.#connection ??= await this.#db.connect("heartbeat", {
      url: this.#options.url,
      timeoutMs: heartbeatTimeoutMs / 2, // A half-open connection is noticed before others act.
    });
    const sentAt = clock.now();
    const status = this.#isDraining ? "draining" : "active";
    if (await beatHeart(this.#connection, this.#worker.workerId, status, load())) {
      this.#misses = 0;
      this.#trustedUntil = sentAt + heartbeatTimeoutMs;
    } else {
      this.#misses += 1;
      logger.error({ misses: this.#misses }, "worker registration is missing");
      if (this.#misses >= MISSES_MAX) {
        throw new RegistrationLostError(
          `worker registration lost during heartbeat: worker ${this.#worker.workerId} was removed`,
        );
      }
    }
    return { restMs: heartbeatIntervalMs };
  }

  /** What it runs of these tenants from now on. Whoever is taken for dead says so again later. */
  async serve(tenants: readonly TenantService[]): Promise<void> {
    const { workerId } = this.#worker;
    await this.#db.transaction(async (tx) => {
      if (!(await writeService(tx, workerId, tenants))) {
        throw new ConflictError(`worker ${workerId} is not registered now`);
      }
      await announceChange(tx, this.#options.changesChannel);
    });
  }

  /** It runs tasks of these queues, too, from now on. */
  async handle(queues: readonly string[]): Promise<void> {
    const { workerId } = this.#worker;
    await this.#db.transaction(async (tx) => {
      if (!(await addQueues(tx, workerId, queues))) {
        throw new ConflictError(`worker ${workerId} is not registered now`);
      }
      await announceChange(tx, this.#options.changesChannel);
    });
  }

  /** It runs no more tasks of these queues. */
  async leave(queues: readonly string[]): Promise<void> {
    const { workerId } = this.#worker;
    await this.#db.transaction(async (tx) => {
      await removeQueues(tx, workerId, queues);
      await announceChange(tx, this.#options.changesChannel);
    });
  }

  /** From here on the leader gives this worker nothing new and moves what it has. */
  async drain(): Promise<void> {
    this.#isDraining = true;
    await this.#db.transaction(async (tx) => {
      await markDraining(tx, this.#worker.workerId);
      await announceChange(tx, this.#options.changesChannel);
    });
  }

  /** Last: a row that vanishes while work still runs would declare a busy worker dead. */
  async deregister(): Promise<void> {
    await this.#db.transaction(async (tx) => {
      await deleteWorker(tx, this.#worker.workerId);
      await announceChange(tx, this.#options.changesChannel);
    });
    this.#options.logger.info({}, "worker removed");
  }

  #dropConnection(): void {
    const connection = this.#connection;
    this.#connection = undefined;
    void connection?.close();
  }
}
