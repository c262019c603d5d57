import { exponentialMs } from "../base/backoff.ts";
import { Bell } from "../base/bell.ts";
import type { Clock } from "../base/clock.ts";
import { messageOf } from "../base/errors.ts";
import type { Logger } from "../base/log.ts";
import { runLoop, type TurnResult } from "../base/loop.ts";
import type { Service } from "../base/supervisor.ts";
import type { Connection, Database } from "../db/database.ts";
import { shapePlans } from "../db/sql/session.ts";
import { isRefusal } from "../db/sqlstate.ts";
import type { ClaimedTask, TaskPack } from "./claimed-task.ts";
import type { Executor } from "./executor.ts";
import type { TaskMetrics } from "./metrics.ts";
import type { PackFinisher } from "./pack-finisher.ts";
import { findCancelled, renewLeases } from "./sql/lease.ts";
import { LeaseLostError, TaskCancelledError } from "./task.ts";

export interface RenewerOptions {
  readonly packs: Pick<PackFinisher, "open">;
  readonly leaseSeconds: number;
  readonly isPooled: boolean;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly metrics: TaskMetrics;
}

const TURN_MS_MAX = 1_000;
const TRUST = 0.9;

/**
 * Keeps the leases of what runs here: one statement for all tasks that are older than a third of
 * their lease. A task whose trust has run out, because no answer came, is lost before anybody else
 * can have it; its handler's signal says so.
 */
export class Renewer implements Service {
  readonly name = "renewer";
  readonly #db: Database;
  readonly #executor: Executor;
  readonly #options: RenewerOptions;
  readonly #bell = new Bell();
  #isChangeNews = false;
  #connection: Connection | undefined;

  constructor(db: Database, executor: Executor, options: RenewerOptions) {
    this.#db = db;
    this.#executor = executor;
    this.#options = options;
  }

  /** Something changed in the cluster: perhaps a task was cancelled. */
  changed(): void {
    this.#isChangeNews = true;
    this.#bell.ring();
  }

  async run(signal: AbortSignal): Promise<void> {
    const { clock, logger } = this.#options;
    const onFailure = (error: unknown, failures: number): number => {
      logger.warn({ error: messageOf(error), failures }, "could not renew leases");
      this.#dropConnection();
      return exponentialMs(failures, 50, this.#turnMs());
    };
    // Trust ends by the clock, also while a renewal waits for an answer that does not come.
    const watch = (): Promise<TurnResult> => Promise.resolve({ restMs: this.#loseUntrusted() });
    await Promise.all([
      runLoop(() => this.#turn(), { clock, bell: this.#bell, onFailure }, signal),
      runLoop(watch, { clock, bell: new Bell(), onFailure }, signal),
    ]);
    this.#dropConnection();
  }

  #dropConnection(): void {
    const connection = this.#connection;
    this.#connection = undefined;
    void connection?.close();
  }

  /** Its own, and impatient: a full pool or a dead wire must not cost leases. */
  async #connect(): Promise<Connection> {
    const timeoutMs = Math.max(100, (this.#options.leaseSeconds * 1000) / 4);
    if (this.#connection === undefined) {
      const connection = await this.#db.connect("renewer", { timeoutMs });
      if (!this.#options.isPooled) await shapePlans(connection);
      this.#connection = connection;
    }
    return this.#connection;
  }

  #turnMs(): number {
    return Math.min(TURN_MS_MAX, (this.#options.leaseSeconds * 1000) / 10);
  }

  async #turn(): Promise<TurnResult> {
    const { clock, leaseSeconds } = this.#options;
    const isNews = this.#isChangeNews;
    this.#isChangeNews = false;
    const nowMs = clock.now();
    const due = new Map<number, ClaimedTask[]>();
    for (const task of this.#executor.held) {
      const seconds = task.leaseSeconds ?? leaseSeconds;
      const isDue = task.renewedAtMs <= nowMs - (seconds * 1000) / 3;
      if (!isDue || task.isCompletedByHandler) continue;
      const others = due.get(seconds);
      if (others === undefined) due.set(seconds, [task]);
      else others.push(task);
    }
    for (const [seconds, tasks] of due) await this.#renew(tasks, seconds);
    if (isNews) await this.#findCancelled();
    return { restMs: this.#turnMs() };
  }

  async #renew(tasks: readonly ClaimedTask[], leaseSeconds: number): Promise<void> {
    const { clock, metrics } = this.#options;
    const connection = await this.#connect();
    const openedAtMs = clock.now();
    const locked = await this.#openPacks(tasks, connection);
    for (const task of tasks) {
      if (task.pack !== undefined && locked.has(task.pack)) this.#trustLocked(task, openedAtMs);
    }
    const sentAtMs = clock.now();
    const sent = tasks.filter(({ pack }) => pack === undefined || pack.state === "open");
    const tokens = sent.map((task) => task.token);
    const renewals = await renewLeases(connection, tokens, leaseSeconds);
    for (const [place, task] of sent.entries()) {
      const renewal = renewals[place];
      if (renewal === undefined) {
        this.#executor.lose(task, new LeaseLostError(task.token));
        continue;
      }
      const { until, cancelReason } = renewal;
      if (cancelReason !== null) this.#executor.cancel(task, new TaskCancelledError(cancelReason));
      if (until === null) {
        this.#trustLocked(task, sentAtMs);
        continue;
      }
      const trustedUntilMs = sentAtMs + leaseSeconds * 1000 * TRUST;
      task.renewed({ atMs: sentAtMs, trustedUntilMs, until });
      task.handler.renewed?.(task);
    }
    metrics.renewals.add(renewals.filter((renewal) => renewal !== undefined).length);
  }

  /** Packs that take so long are not worth keeping together. Gives those that are locked. */
  async #openPacks(
    tasks: readonly ClaimedTask[],
    connection: Connection,
  ): Promise<ReadonlySet<TaskPack>> {
    const packs = new Set(tasks.flatMap(({ pack }) => pack ?? []));
    try {
      return await this.#options.packs.open(packs, connection);
    } catch (error) {
      if (!isRefusal(error)) throw error; // The connection may be gone.
      // Other leases must not go with it.
      this.#options.logger.warn({ error: messageOf(error) }, "could not open packs");
      return new Set();
    }
  }

  /** Its own transaction has it locked: nobody takes it, and it is asked for again at once. */
  #trustLocked(task: ClaimedTask, sentAtMs: number): void {
    task.renewed({ trustedUntilMs: sentAtMs + 3 * this.#turnMs() });
  }

  async #findCancelled(): Promise<void> {
    const running = [...this.#executor.held].filter((task) => task.state !== "ended");
    if (running.length === 0) return;
    const tokens = running.map((task) => task.token);
    const reasons = await findCancelled(await this.#connect(), tokens);
    for (const [place, task] of running.entries()) {
      const reason = reasons.get(place);
      if (reason !== undefined) this.#executor.cancel(task, new TaskCancelledError(reason));
    }
  }

  /**
   * How long until the next one may be lost. Not a turn later: the trust of a short lease ends less
   * than a turn before the lease does.
   */
  #loseUntrusted(): number {
    const now = this.#options.clock.now();
    let nextMs = this.#turnMs();
    for (const task of this.#executor.held) {
      if (task.isCompletedByHandler) continue;
      const leftMs = task.trustedUntilMs - now;
      if (leftMs <= 0) this.#executor.lose(task, new LeaseLostError(task.token));
      else nextMs = Math.min(nextMs, leftMs);
    }
    return nextMs;
  }
}
