import { InvalidInputError } from "../base/errors.ts";
import type { Connection, Database, Queryable } from "../db/database.ts";
import { isUnavailable, sqlState } from "../db/sqlstate.ts";
import type { ConsumerTx } from "./consumer.ts";

/** The server's answer to a batch that took too long; that is the handler's doing. */
const TOO_SLOW = new Set(["57014", "55P03", "25P03"]);

/** The server ends a statement at the batch's timeout; only a dead one stays silent longer. */
const ANSWER_MS = 2_000;

/**
 * The transaction as a handler sees it. Remembers whether the database failed under it, so that an
 * outage is never counted against the handler, and refuses to be used after the batch has ended,
 * when its statements would land in someone else's transaction.
 */
export class BatchTx implements ConsumerTx {
  /** The same for statements of our own. */
  readonly store: Queryable;
  readonly #connection: Connection;
  readonly #timeoutMs: number;
  #isOpen = true;
  #outage: unknown;
  #hasFailed = false;

  constructor(db: Database, connection: Connection, batchTimeoutMs: number) {
    this.store = db.over(this);
    this.#connection = connection;
    this.#timeoutMs = batchTimeoutMs + ANSWER_MS;
  }

  /** The error with which the database, not the handler's SQL, ended this batch. */
  get outage(): unknown {
    return this.#outage;
  }

  /** Whether a statement failed, so that the transaction may be broken. */
  get hasFailed(): boolean {
    return this.#hasFailed;
  }

  close(): void {
    this.#isOpen = false;
  }

  query<Row = Record<string, unknown>>(
    text: string,
    values?: unknown[],
  ): Promise<{ rows: Row[]; rowCount: number | null }> {
    const answer = this.#query<Row>(text, values);
    // One that nobody awaits fails the batch; it must not end the process as unhandled.
    answer.catch(() => {});
    return answer;
  }

  async #query<Row>(
    text: string,
    values: unknown[] | undefined,
  ): Promise<{ rows: Row[]; rowCount: number | null }> {
    if (!this.#isOpen) {
      throw new InvalidInputError("this transaction has ended: await every query in the handler");
    }
    try {
      const query = { text, values: values ?? [], query_timeout: this.#timeoutMs };
      const result = await this.#connection.client.query(query);
      return { rows: result.rows as Row[], rowCount: result.rowCount };
    } catch (error) {
      this.#hasFailed = true;
      if (isUnavailable(error) && !TOO_SLOW.has(sqlState(error) ?? "")) this.#outage ??= error;
      throw error;
    }
  }
}

/** For consumers of our own, which write to our tables with what a batch of theirs commits. */
export function storeOf(tx: ConsumerTx): Queryable {
  if (tx instanceof BatchTx) return tx.store;
  throw new InvalidInputError("this is not the transaction of a batch");
}
