import { messageOf } from "../base/errors.ts";
import type { Logger } from "../base/log.ts";
import type { Database } from "../db/database.ts";
import { notify } from "../db/sql/session.ts";

/**
 * Tells listeners that the log grew, after the commit and at most one statement at a time: while
 * one is on its way, later appends wait for a single next one. NOTIFY takes a lock of the whole
 * server at commit, so one per append would serialise all appenders.
 */
export class Notifier {
  readonly #db: Database;
  readonly #channel: string;
  readonly #logger: Logger;
  #highest = 0n;
  #sent = 0n;
  #sending: Promise<void> | undefined;

  constructor(db: Database, channel: string, logger: Logger) {
    this.#db = db;
    this.#channel = channel;
    this.#logger = logger;
  }

  appended(position: bigint): void {
    if (position > this.#highest) this.#highest = position;
    this.#sending ??= this.#send().finally(() => {
      this.#sending = undefined;
    });
  }

  /** Resolves when everything appended before has been told. */
  async settled(): Promise<void> {
    await this.#sending;
  }

  async #send(): Promise<void> {
    while (this.#sent < this.#highest) {
      const position = this.#highest;
      this.#sent = position;
      try {
        await notify(this.#db, this.#channel, String(position));
      } catch (error) {
        // Pollers and the listeners' own reconciliation find the events anyway.
        this.#logger.warn({ error: messageOf(error) }, "could not notify of appended events");
      }
    }
  }
}
