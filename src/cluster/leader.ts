import { exponentialMs } from "../base/backoff.ts";
import { Bell } from "../base/bell.ts";
import type { Clock } from "../base/clock.ts";
import { messageOf } from "../base/errors.ts";
import { runLoop, type TurnResult } from "../base/loop.ts";
import type { Service } from "../base/supervisor.ts";
import type { Database } from "../db/database.ts";
import { DeadBatches } from "./dead-batches.ts";
import type { Election } from "./election.ts";
import { type RebalanceOptions, rebalance } from "./rebalance.ts";
import type { LeaderTerm } from "./sql/assignments.ts";
import { announceChange } from "./sql/changes.ts";
import { forgetEndedWorkers, markDeadWorkers, removeStaleWorkers } from "./sql/workers.ts";

/** Small, idempotent work that one worker does for all. It may run twice and must not mind. */
export interface LeaderDuty {
  readonly name: string;
  readonly everyMs: number;
  run(leader: LeaderTerm): Promise<void>;
}

export interface LeaderOptions extends Omit<RebalanceOptions, "deadBatches"> {
  readonly workerId: string;
  readonly rebalanceIntervalMs: number;
  readonly clock: Clock;
  readonly duties: readonly LeaderDuty[];
  readonly onUnassignable: (names: readonly string[]) => void;
}

const FORGET_SECONDS = 24 * 3600;
const FORGET_EVERY_MS = 60_000;
/** How often a follower tries, in heartbeat timeouts, when nothing tells it to try sooner. */
const ELECTION_SHARE = 0.5;
/** A busy row was not moved in this pass; its batch may end any moment. */
const RETRY_MS = 100;

/**
 * follower → leader(term) → follower. Every turn asks the election first; a leader that cannot
 * know whether it still leads does nothing. If the process dies on any line, the lock or lease
 * frees itself, the next leader begins a higher term, and whatever was half done is decided anew.
 */
export class Leader implements Service {
  readonly name = "leader";
  /** Rung when membership may have changed. */
  readonly bell = new Bell();
  readonly #db: Database;
  readonly #election: Election;
  readonly #options: LeaderOptions & RebalanceOptions;
  readonly #lastRun = new Map<LeaderDuty, number>();
  readonly #duties: readonly LeaderDuty[];
  #term: bigint | undefined;
  /** Since when this worker leads without a failed cycle. */
  #steadySince = Infinity;

  constructor(db: Database, election: Election, options: LeaderOptions) {
    this.#db = db;
    this.#election = election;
    this.#options = { ...options, deadBatches: new DeadBatches(db, options) };
    this.#duties = [...this.#registryDuties(), ...options.duties];
  }

  get term(): bigint | undefined {
    return this.#options.clock.now() < this.#election.trustedUntil ? this.#term : undefined;
  }

  async run(signal: AbortSignal): Promise<void> {
    const { clock, logger, rebalanceIntervalMs } = this.#options;
    const onFailure = (error: unknown, failures: number): number => {
      logger.warn({ error: messageOf(error), failures }, "leader cycle failed");
      this.#steadySince = clock.now();
      if (this.term === undefined) this.#become(undefined);
      return exponentialMs(failures, 100, Math.min(rebalanceIntervalMs, 5_000));
    };
    await runLoop(() => this.#turn(), { clock, bell: this.bell, onFailure }, signal);
    const led = this.#term !== undefined;
    if (led) await this.#leave();
    await this.#election
      .release()
      .then(() => (led ? announceChange(this.#db, this.#options.changesChannel) : undefined))
      .catch((error: unknown) => {
        logger.warn({ error: messageOf(error) }, "could not release leadership");
      });
    if (led) logger.info({}, "worker released leadership");
  }

  /** Gives what this worker had to the others now, instead of leaving it to the next leader. */
  async #leave(): Promise<void> {
    const { workerId, logger } = this.#options;
    const term = this.term;
    if (term === undefined) return;
    await rebalance(this.#db, { term, leaderId: workerId }, this.#options).catch(
      (error: unknown) => {
        logger.warn({ error: messageOf(error) }, "could not hand over before leaving");
      },
    );
  }

  async #turn(): Promise<TurnResult> {
    const { clock, heartbeatTimeoutMs, rebalanceIntervalMs, workerId } = this.#options;
    this.#become(await this.#election.hold());
    const term = this.#term;
    if (term === undefined) {
      // A dead leader is replaced when it is known to be dead, not at the next look behind that.
      const freeInMs = Math.max(10, this.#election.freeInMs);
      return {
        restMs: Math.min(rebalanceIntervalMs, heartbeatTimeoutMs * ELECTION_SHARE, freeInMs),
      };
    }
    const leader = { term, leaderId: workerId };
    const result = await rebalance(this.#db, leader, this.#options);
    this.#options.onUnassignable(result.unassignable);
    await this.#runDuties(leader);
    if (result.waiting > 0) return { restMs: Math.min(RETRY_MS, rebalanceIntervalMs) };
    // Looks again just after the next heartbeat would expire, not a whole interval later, and
    // renews a lease well before it ends.
    const renewMs = (this.#election.trustedUntil - clock.now()) / 2;
    const restMs = Math.min(rebalanceIntervalMs, result.nextExpiryMs + 10, renewMs);
    return { restMs: Math.max(10, restMs) };
  }

  async #runDuties(leader: LeaderTerm): Promise<void> {
    const { clock, logger } = this.#options;
    for (const duty of this.#duties) {
      const last = this.#lastRun.get(duty) ?? -Infinity;
      if (clock.now() - last < duty.everyMs) continue;
      this.#lastRun.set(duty, clock.now());
      await duty.run(leader).catch((error: unknown) => {
        logger.warn({ duty: duty.name, error: messageOf(error) }, "leader duty failed");
      });
    }
  }

  #registryDuties(): LeaderDuty[] {
    const { clock, heartbeatTimeoutMs, logger, workerId } = this.#options;
    return [
      {
        name: "mark dead workers",
        everyMs: Math.min(1_000, heartbeatTimeoutMs / 2),
        run: async () => {
          const dead = await markDeadWorkers(this.#db, heartbeatTimeoutMs / 1000, workerId);
          if (dead.length > 0) logger.warn({ dead }, "workers stopped beating");
        },
      },
      {
        name: "remove stale workers",
        everyMs: heartbeatTimeoutMs,
        run: async () => {
          // Who could not reach the database may not have been the only one.
          if (clock.now() - this.#steadySince < heartbeatTimeoutMs) return;
          const ageSeconds = (2 * heartbeatTimeoutMs) / 1000;
          await this.#db.transaction((tx) => removeStaleWorkers(tx, ageSeconds, workerId));
        },
      },
      {
        name: "forget ended workers",
        everyMs: FORGET_EVERY_MS,
        run: () => forgetEndedWorkers(this.#db, FORGET_SECONDS),
      },
    ];
  }

  #become(term: bigint | undefined): void {
    if (term === this.#term) return;
    const { logger } = this.#options;
    if (term !== undefined) logger.info({ term: String(term) }, "worker became leader");
    else logger.warn({ term: String(this.#term) }, "worker lost leadership");
    this.#term = term;
    this.#steadySince = this.#options.clock.now();
  }
}
