import { exponentialMs } from "../base/backoff.ts";
import { Bell } from "../base/bell.ts";
import type { Clock } from "../base/clock.ts";
import { messageOf } from "../base/errors.ts";
import type { Logger } from "../base/log.ts";
import { runLoop, type TurnResult } from "../base/loop.ts";
import type { Service } from "../base/supervisor.ts";
import type { Database } from "../db/database.ts";
import { type Pulse, readPulse } from "./sql/registration.ts";

export interface DispatcherOptions {
  readonly intervalMs: number;
  readonly clock: Clock;
  readonly logger: Logger;
  /** The log may have grown. */
  readonly onEvents: () => void;
  /** Membership, an assignment or a consumer's state may have changed. */
  readonly onChanges: () => void;
  /** Tasks may have been enqueued. */
  readonly onTasks: () => void;
}

/**
 * Looks at the log and the cluster in one cheap statement and wakes whoever sleeps. It is how a
 * worker that polls learns of anything, and what saves one that listens from a lost notification.
 */
export class Dispatcher implements Service {
  readonly name = "dispatcher";
  readonly #db: Database;
  readonly #options: DispatcherOptions;
  #last: Pulse | undefined;
  #wasNumberNew = false;

  constructor(db: Database, options: DispatcherOptions) {
    this.#db = db;
    this.#options = options;
  }

  async run(signal: AbortSignal): Promise<void> {
    const { clock, logger, intervalMs } = this.#options;
    const onFailure = (error: unknown, failures: number): number => {
      logger.warn({ error: messageOf(error), failures }, "dispatcher poll failed");
      this.#last = undefined; // Whatever happened meanwhile, everybody looks.
      return exponentialMs(failures, intervalMs, 5_000);
    };
    await runLoop(() => this.#turn(), { clock, bell: new Bell(), onFailure }, signal);
  }

  async #turn(): Promise<TurnResult> {
    const { intervalMs, onEvents, onChanges, onTasks } = this.#options;
    const pulse = await readPulse(this.#db);
    const last = this.#last;
    this.#last = pulse;
    if (last === undefined || pulse.latest !== last.latest) onEvents();
    if (last === undefined || pulse.changes !== last.changes) onChanges();
    // The number is drawn before the commit, so what was new at the last look may be there now.
    const isNumberNew = last === undefined || pulse.taskNumber !== last.taskNumber;
    if (isNumberNew || this.#wasNumberNew) onTasks();
    this.#wasNumberNew = isNumberNew;
    return { restMs: intervalMs };
  }
}
