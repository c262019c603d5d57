import type { Connection, Database, Queryable } from "../db/database.ts";
import { queryWithLockTimeout, setSessionLockTimeout, shapePlans } from "../db/sql/session.ts";
import { isLockTimeout, isRefusal } from "../db/sqlstate.ts";
import type { Statement } from "../db/statement.ts";

export interface TaskSessionOptions {
  /** Whether each statement may land on another server connection: then nothing can be set. */
  readonly isPooled: boolean;
  /** A lock that is not free by then is an error. Defaults to waiting for it. */
  readonly lockTimeoutMs?: number;
}

/**
 * The connection on which a worker claims and completes. Statements are written one behind the
 * other without waiting, and run in that order. After any error of the connection itself it is cut:
 * what was on the wire fails with it, and the next statement opens another.
 */
export class TaskSession implements Queryable {
  readonly #db: Database;
  readonly #options: TaskSessionOptions;
  #opening: Promise<Connection> | undefined;
  /** Grows with every new connection: what was known through the old one must be found again. */
  #incarnation = 0;

  constructor(db: Database, options: TaskSessionOptions) {
    this.#db = db;
    this.#options = options;
  }

  get incarnation(): number {
    return this.#incarnation;
  }

  async query<Row>(statement: Statement, values: readonly unknown[] = []): Promise<Row[]> {
    const { isPooled, lockTimeoutMs } = this.#options;
    return await this.#run((connection) =>
      isPooled && lockTimeoutMs !== undefined
        ? queryWithLockTimeout<Row>(connection, lockTimeoutMs, [statement, values])
        : connection.query<Row>(statement, values),
    );
  }

  async close(): Promise<void> {
    const opening = this.#opening;
    this.#opening = undefined;
    await (await opening?.catch(() => undefined))?.close();
  }

  async #run<T>(work: (connection: Connection) => Promise<T>): Promise<T> {
    const opening = (this.#opening ??= this.#open());
    let connection: Connection | undefined;
    try {
      connection = await opening;
      return await work(connection);
    } catch (error) {
      // What the server has answered leaves the connection as it was.
      const isAnswered = isLockTimeout(error) || isRefusal(error);
      if (this.#opening === opening && !isAnswered) {
        this.#opening = undefined;
        connection?.destroy();
      }
      throw error;
    }
  }

  async #open(): Promise<Connection> {
    this.#incarnation += 1;
    const connection = await this.#db.connect("tasks");
    const { isPooled, lockTimeoutMs } = this.#options;
    if (isPooled) return connection;
    await shapePlans(connection);
    if (lockTimeoutMs !== undefined) await setSessionLockTimeout(connection, lockTimeoutMs);
    return connection;
  }
}
