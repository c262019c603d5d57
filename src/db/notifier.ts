import { messageOf } from "../base/errors.ts";
import type { Logger } from "../base/log.ts";
import type { Connection, Database } from "./database.ts";
import { notify } from "./sql/session.ts";

/**
 * Tells listeners that there is something new, after the commit and at most one notification at a
 * time per process: writes that commit while one is on its way share the next. Never in the write's
 * own transaction: NOTIFY takes a lock of the whole server until its transaction is flushed to
 * disk, so one per write would make all writers take turns.
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
   * Runs a write. When no other notification is on its way, this one is written to the same
   * connection right behind the write, so it costs no round trip; if the write then fails, some
   * listener looked in vain.
   */
  async announce<T>(connection: Connection, write: () => Promise<T>): Promise<T> {
    if (this.#sending !== undefined) {
      const result = await write();
      this.ring();
      return result;
    }
    const [writing, sending] = connection.together(() => [
      write(),
      this.#settle(notify(connection, this.#channel, "")),
    ]);
    this.#sending = sending;
    const [result] = await Promise.all([writing, sending]);
    return result;
  }

  /** Tells of something that was committed just now. */
  ring(): void {
    this.#isDue = true;
    this.#send();
  }

  /** Resolves when everything written before has been told. */
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
      // Pollers and the listeners' own reconciliation find it anyway.
      this.#logger.warn({ error: messageOf(error) }, "could not notify");
    } finally {
      this.#sending = undefined;
      this.#send();
    }
  }
}
