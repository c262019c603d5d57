import { messageOf } from "../base/errors.ts";
import type { Logger } from "../base/log.ts";
import type { Connection, Database } from "../db/database.ts";
import { notify } from "../db/sql/session.ts";

/**
 * Tells listeners that the log grew, after the commit and at most one notification at a time per
 * process: appends that commit while one is on its way share the next. Never in the append's own
 * transaction: NOTIFY takes a lock of the whole server until its transaction is flushed to disk,
 * so one per append would make all appenders take turns.
 */
export class Notifier {
  readonly #db: Database;
  readonly #channel: string;
  readonly #logger: Logger;
  #isDue = false;
  #sending: Promise<void> | undefined;

  constructor(db: Database, channel: string, logger: Logger) {
    this.#db = db;
    this.#channel = channel;
    this.#logger = logger;
  }

  /**
   * Runs an append. When no other notification is on its way, this one is written to the same
   * connection right behind the append, so it costs no round trip; if the append then fails, some
   * listener looked in vain.
   */
  async announce<T>(connection: Connection, append: () => Promise<T>): Promise<T> {
    if (this.#sending !== undefined) {
      const result = await append();
      this.#isDue = true;
      this.#send();
      return result;
    }
    const appending = append();
    this.#sending = this.#settle(notify(connection, this.#channel, ""));
    const [result] = await Promise.all([appending, this.#sending]);
    return result;
  }

  /** Resolves when everything appended before has been told. */
  async settled(): Promise<void> {
    while (this.#sending !== undefined) await this.#sending;
  }

  #send(): void {
    if (this.#sending !== undefined || !this.#isDue) return;
    this.#isDue = false;
    this.#sending = this.#settle(notify(this.#db, this.#channel, ""));
  }

  async #settle(sent: Promise<void>): Promise<void> {
    try {
      await sent;
    } catch (error) {
      // Pollers and the listeners' own reconciliation find the events anyway.
      this.#logger.warn({ error: messageOf(error) }, "could not notify of appended events");
    } finally {
      this.#sending = undefined;
      this.#send();
    }
  }
}
