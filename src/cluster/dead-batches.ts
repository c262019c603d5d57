import { messageOf } from "../base/errors.ts";
import type { Logger } from "../base/log.ts";
import type { Database } from "../db/database.ts";
import type { LeaderTerm } from "./sql/assignments.ts";
import { endDeadBatches } from "./sql/dead-batches.ts";

export interface DeadBatchesOptions {
  readonly heartbeatTimeoutMs: number;
  readonly logger: Logger;
}

/**
 * Ends what dead workers left open. A batch has the row of its consumer's assignment locked, and
 * the session of a worker that was paused, or whose network is gone, keeps it though nobody works.
 *
 * open → committed | rolled back, by its worker; and by us, when the worker is dead by the clock of
 * the database: open → session ended → rolled back → row free → assignment moved.
 *
 * The leader dies before the signal: nothing has happened. Behind it: the batch is rolled back, and
 * the next leader moves the consumer. The worker beats in the same moment: its batch is rolled back
 * all the same, which it takes for an outage and counts against no handler; it goes on with what it
 * still owns, or finds out in its next batch that it does not. Its late COMMIT finds no session.
 * The role may not signal: that is told, and the row is free after batchTimeout.
 */
export class DeadBatches {
  readonly #db: Database;
  readonly #options: DeadBatchesOptions;
  /** Workers whose batches could not be ended, which is told once of each. */
  readonly #refused = new Set<string>();

  constructor(db: Database, options: DeadBatchesOptions) {
    this.#db = db;
    this.#options = options;
  }

  /** One worker whose sessions may not be ended keeps none of another's from it. */
  async end(leader: LeaderTerm, workerIds: Iterable<string>): Promise<void> {
    for (const workerId of new Set(workerIds)) await this.#end(leader, workerId);
  }

  async #end(leader: LeaderTerm, workerId: string): Promise<void> {
    const { heartbeatTimeoutMs, logger } = this.#options;
    try {
      const ended = await endDeadBatches(this.#db, leader, workerId, heartbeatTimeoutMs / 1000);
      if (ended.length > 0) {
        logger.warn({ worker: workerId, ended }, "ended batches of a worker that stopped beating");
      }
    } catch (error) {
      if (this.#refused.has(workerId)) return;
      this.#refused.add(workerId);
      logger.error(
        { worker: workerId, error: messageOf(error) },
        "could not end the batches of a dead worker",
      );
    }
  }
}
