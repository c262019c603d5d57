import { exponentialMs } from "../base/backoff.ts";
import { Bell } from "../base/bell.ts";
import type { Clock } from "../base/clock.ts";
import { messageOf } from "../base/errors.ts";
import type { Logger } from "../base/log.ts";
import { runLoop, type TurnResult } from "../base/loop.ts";
import type { Service } from "../base/supervisor.ts";
import { holdTerm } from "../cluster/sql/leader.ts";
import type { Connection, Database } from "../db/database.ts";
import { notify, shapePlansHere } from "../db/sql/session.ts";
import type { TaskMetrics } from "./metrics.ts";
import { buryTasks, endTasks } from "./sql/finish.ts";
import { promoteTasks, secondsToClaim, secondsToScheduled } from "./sql/housekeeping.ts";
import { freeLostLimits } from "./sql/limits.ts";
import { openLostPacks } from "./sql/open-packs.ts";
import {
  forgetClaims,
  type LostTask,
  lockDueClaims,
  lockLostTasks,
  putOnProbation,
} from "./sql/reap.ts";

export interface HousekeeperOptions {
  /** How often to look when nothing is known to be due. */
  readonly turnMs: number;
  readonly leaseMs: number;
  /** After so long without a heartbeat a worker is lost. */
  readonly heartbeatTimeoutMs: number;
  readonly workerId: string;
  /** Undefined while another worker leads. */
  readonly term: () => bigint | undefined;
  /** Where workers are told that there is work. */
  readonly channel: string;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly metrics: TaskMetrics;
  readonly onWork: () => void;
}

/** While another worker leads; costs nothing. */
const FOLLOWER_MS = 1_000;
/** How often a follower sees whether the leader does its work. */
const FOLLOWER_CHECK_MS = 10_000;
const LATE_SECONDS = 1;
const RETRY_MS_MAX = 5_000;
/** Something due was not taken: somebody has its row locked. */
const BUSY_MS = 50;
/** Every enqueue rings, and most schedule nothing: who rings waits for so long after a look. */
const LOOK_MS = 20;
/** Who rings asks for what is scheduled: claims are looked at no more often than this. */
const CLAIMS_MS = 1_000;
/** One that is due was not taken. */
const CLAIMS_BUSY_MS = 100;
const PROMOTE_MAX = 1_000;
const CLAIMS_MAX = 50;

/**
 * What one worker does for all, when it is due: makes scheduled tasks pending and takes tasks from
 * workers that stopped renewing. Both are compare-and-set and done under the leader's term, so a
 * leader that was replaced writes nothing, and two of them could do no harm.
 */
export class Housekeeper implements Service {
  readonly name = "housekeeper";
  /** Rung when something was scheduled. */
  readonly bell = new Bell();
  readonly #db: Database;
  readonly #options: HousekeeperOptions;
  #checkedAtMs = -Infinity;
  /** Before then a ring is no reason to look. */
  #ringsAfterMs = -Infinity;
  #nextLookMs = -Infinity;
  /** Not before then are claims looked at again. */
  #claimsAfterMs = -Infinity;
  /** When the next of them is due; as soon as may be, when somebody rang too early. */
  #claimDueMs = -Infinity;

  constructor(db: Database, options: HousekeeperOptions) {
    this.#db = db;
    this.#options = options;
  }

  async run(signal: AbortSignal): Promise<void> {
    const { clock, logger } = this.#options;
    const onFailure = (error: unknown, failures: number): number => {
      logger.warn({ error: messageOf(error), failures }, "task housekeeping failed");
      return exponentialMs(failures, 100, RETRY_MS_MAX);
    };
    await runLoop(() => this.#turn(), { clock, bell: this.bell, onFailure }, signal);
  }

  async #turn(): Promise<TurnResult> {
    const { clock } = this.#options;
    const term = this.#options.term();
    if (term === undefined) return await this.#turnOfFollower();
    const waitMs = Math.min(this.#ringsAfterMs, this.#nextLookMs) - clock.now();
    if (waitMs > 0) return { restMs: waitMs, isDeaf: true };
    const result = await this.#turnOfLeader(term);
    this.#ringsAfterMs = clock.now() + LOOK_MS;
    this.#nextLookMs = clock.now() + (result === "again" ? 0 : result.restMs);
    return result;
  }

  async #turnOfLeader(term: bigint): Promise<TurnResult> {
    const reaped = await this.#reapDue(term);
    const promoteInSeconds = await secondsToScheduled(this.#db);
    const promoted =
      promoteInSeconds <= 0
        ? await this.#underTerm(term, (tx) => promoteTasks(tx, PROMOTE_MAX))
        : 0;
    if (reaped + promoted > 0) await this.#announce(reaped, promoted);
    if (promoted === PROMOTE_MAX) return "again";
    if (promoteInSeconds <= 0) return { restMs: BUSY_MS };
    // A claim made after the last look has a whole lease before it.
    const { clock, turnMs, leaseMs } = this.#options;
    const claimMs = Math.max(0, this.#claimDueMs - clock.now());
    return { restMs: Math.min(turnMs, leaseMs / 2, Math.ceil(promoteInSeconds * 1000), claimMs) };
  }

  async #reapDue(term: bigint): Promise<number> {
    const { clock } = this.#options;
    if (clock.now() < this.#claimsAfterMs) {
      this.#claimDueMs = this.#claimsAfterMs;
      return 0;
    }
    const inMs = Math.ceil((await secondsToClaim(this.#db)) * 1000);
    const reaped = inMs <= 0 ? await this.#underTerm(term, (tx) => this.#reap(tx)) : 0;
    this.#claimDueMs = clock.now() + Math.max(inMs, CLAIMS_BUSY_MS);
    this.#claimsAfterMs = Math.min(this.#claimDueMs, clock.now() + CLAIMS_MS);
    return reaped;
  }

  /**
   * A leader may be paused with its lock in hand. What is long overdue anybody does: rows are
   * locked and compared all the same, the term only keeps two from doing it at once.
   */
  async #turnOfFollower(): Promise<TurnResult> {
    const { clock, leaseMs } = this.#options;
    const everyMs = Math.min(FOLLOWER_CHECK_MS, leaseMs / 3);
    if (clock.now() - this.#checkedAtMs < everyMs) return { restMs: FOLLOWER_MS };
    this.#checkedAtMs = clock.now();
    const isReapLate = (await secondsToClaim(this.#db)) < -LATE_SECONDS;
    const isPromotionLate = (await secondsToScheduled(this.#db)) < -LATE_SECONDS;
    const reaped = isReapLate ? await this.#db.transaction((tx) => this.#reap(tx)) : 0;
    const promoted = isPromotionLate
      ? await this.#db.transaction((tx) => promoteTasks(tx, PROMOTE_MAX))
      : 0;
    if (reaped + promoted > 0) await this.#announce(reaped, promoted);
    return { restMs: Math.min(FOLLOWER_MS, everyMs) };
  }

  async #underTerm(term: bigint, work: (tx: Connection) => Promise<number>): Promise<number> {
    return await this.#db.transaction(async (tx) =>
      (await holdTerm(tx, term, this.#options.workerId)) ? await work(tx) : 0,
    );
  }

  async #announce(reaped: number, promoted: number): Promise<void> {
    const { channel, heartbeatTimeoutMs, logger, metrics, onWork } = this.#options;
    metrics.reaped.add(reaped);
    metrics.promoted.add(promoted);
    if (reaped > 0) logger.warn({ reaped }, "took tasks from a worker that stopped renewing");
    onWork();
    await notify(this.#db, channel, "");
    // Tasks that are free again must not wait for the slots under which they were lost.
    if (reaped > 0) await freeLostLimits(this.#db, heartbeatTimeoutMs / 1000);
  }

  async #reap(tx: Connection): Promise<number> {
    await shapePlansHere(tx);
    const claims = await lockDueClaims(tx, CLAIMS_MAX);
    if (claims.length === 0) return 0;
    await openLostPacks(tx, claims);
    const lost = await lockLostTasks(tx, claims);
    const cancelled = lost.filter((task) => task.cancel_reason !== null);
    const dead = lost.filter((task) => task.cancel_reason === null && isGuilty(task));
    const back = lost.filter((task) => task.cancel_reason === null && !isGuilty(task));
    if (cancelled.length > 0) {
      const end = { outcome: "cancelled", state: "cancelled" } as const;
      await endTasks(
        tx,
        cancelled.map((task) => ({ ...tokenOf(task), ...end })),
      );
    }
    if (dead.length > 0) await buryTasks(tx, dead.map(burial));
    this.#options.metrics.deadLetters.add(dead.length, { cause: "worker_lost" });
    if (back.length > 0)
      await putOnProbation(
        tx,
        back.map((task) => task.id),
      );
    await forgetClaims(tx, claims);
    return lost.length;
  }
}

/** Claimed alone, it took its worker along too often, or has no attempt left. */
function isGuilty(task: LostTask): boolean {
  if (!task.on_probation) return false;
  return task.losses + 1 >= task.max_losses || task.attempt >= task.max_attempts;
}

const tokenOf = ({ id, generation, claim_id }: LostTask) => ({ id, generation, claim_id });

function burial(task: LostTask) {
  return {
    ...tokenOf(task),
    outcome: "lost" as const,
    reason: `its worker was lost ${task.losses + 1} times while it ran this task alone`,
    cause: "worker_lost" as const,
    park: task.parks,
  };
}
