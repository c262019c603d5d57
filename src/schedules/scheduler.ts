import { exponentialMs } from "../base/backoff.ts";
import { Bell } from "../base/bell.ts";
import type { Clock } from "../base/clock.ts";
import { messageOf } from "../base/errors.ts";
import type { Logger } from "../base/log.ts";
import { runLoop, type TurnResult } from "../base/loop.ts";
import type { Service } from "../base/supervisor.ts";
import { holdTerm } from "../cluster/sql/leader.ts";
import type { Database } from "../db/database.ts";
import { Notifier } from "../db/notifier.ts";
import type { QueueDirectory } from "../tasks/directory.ts";
import type { EnqueueContext } from "../tasks/enqueue.ts";
import type { TaskMetrics } from "../tasks/metrics.ts";
import { fireSchedule } from "./firing.ts";
import {
  type DueSchedule,
  probeSchedules,
  readDueSchedules,
  setBackSchedule,
} from "./sql/firings.ts";

export interface SchedulerOptions {
  readonly workerId: string;
  /** Undefined while another worker leads. */
  readonly term: () => bigint | undefined;
  /** With connections of its own: it is asked while a transaction is open. */
  readonly directory: QueueDirectory;
  /** Where workers are told that there is work. */
  readonly channel: string;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly metrics: TaskMetrics;
  /** Tasks were enqueued. */
  readonly onWork: () => void;
}

/** The database's clock may be set at any time, so a tick is never slept for much longer. */
const TURN_MS = 1_000;
/** Without a schedule; the announcement of the first one rings the bell. */
const NOTHING_MS = 30_000;
/** What is due is in other hands. */
const BUSY_MS = 250;
const FAILED_MS_MAX = 5_000;
const DUE_MAX = 100;
const SET_BACK_SECONDS_MAX = 60;

/**
 * Fires schedules when they are due by the database's clock. One worker does it for all, under the
 * leader's term; two at once would do no harm, see `fireSchedule`. A schedule that cannot fire is
 * set back, keeps its tick, and does not hold up the others.
 */
export class Scheduler implements Service {
  readonly name = "scheduler";
  /** Rung when schedules have changed. */
  readonly bell = new Bell();
  readonly #db: Database;
  readonly #options: SchedulerOptions;
  readonly #tasks: EnqueueContext;

  constructor(db: Database, options: SchedulerOptions) {
    this.#db = db;
    this.#options = options;
    const { directory, channel, logger } = options;
    this.#tasks = { db, directory, channel, notifier: new Notifier(db, channel, logger) };
  }

  async run(signal: AbortSignal): Promise<void> {
    const { clock, logger } = this.#options;
    const onFailure = (error: unknown, failures: number): number => {
      logger.warn({ error: messageOf(error), failures }, "looking for due schedules failed");
      return exponentialMs(failures, 100, FAILED_MS_MAX);
    };
    const turn = (): Promise<TurnResult> => this.#turn(signal);
    await runLoop(turn, { clock, bell: this.bell, onFailure }, signal);
  }

  async #turn(signal: AbortSignal): Promise<TurnResult> {
    const { term } = this.#options;
    if (term() === undefined) return { restMs: TURN_MS };
    const waitSeconds = await probeSchedules(this.#db);
    if (waitSeconds === undefined) return { restMs: NOTHING_MS };
    if (waitSeconds > 0) return { restMs: Math.min(TURN_MS, Math.ceil(waitSeconds * 1000)) };
    let moved = 0;
    for (const due of await readDueSchedules(this.#db, DUE_MAX)) {
      if (signal.aborted) break;
      if (await this.#fire(due)) moved += 1;
    }
    return moved > 0 ? "again" : { restMs: BUSY_MS };
  }

  /** True when the schedule moved on. */
  async #fire(due: DueSchedule): Promise<boolean> {
    const { workerId, logger, metrics, onWork } = this.#options;
    const term = this.#options.term();
    if (term === undefined) return false;
    try {
      const fired = await fireSchedule(this.#tasks, due, (tx) => holdTerm(tx, term, workerId));
      if (fired === undefined) return false;
      const { queue, taskIds, missed } = fired;
      if (missed > 0) logger.warn({ ...named(due), missed }, "schedule has missed ticks");
      if (taskIds.length > 0) {
        metrics.enqueued.add(taskIds.length, { queue });
        onWork();
      }
      return true;
    } catch (error) {
      // When the database is the reason, this throws as well, and the loop waits.
      await setBackSchedule(this.#db, due, messageOf(error), SET_BACK_SECONDS_MAX);
      logger.warn({ ...named(due), error: messageOf(error) }, "schedule could not fire");
      return false;
    }
  }
}

const named = ({ tenant, name }: DueSchedule): object => ({ tenant, schedule: name });
