import { ConfigError } from "../base/errors.ts";
import type { SqlExecutor } from "../db/executor.ts";

/** What we call of a node-postgres client. A pool is not one: its statements part ways. */
export interface PgClient extends SqlExecutor {
  getTransactionStatus?(): string | null;
  readonly totalCount?: never;
}

/**
 * A node-postgres client on which BEGIN has been awaited. A client fits `tx` without this too; this
 * refuses a pool, and statements outside a transaction, which would be committed one by one.
 */
export function fromPg(client: PgClient): SqlExecutor {
  if (typeof client?.query !== "function") {
    throw new ConfigError("fromPg needs a node-postgres client on which a transaction is open");
  }
  if ("totalCount" in client) {
    throw new ConfigError(
      "fromPg got a pool, which may run every statement on another connection; " +
        "take a client with pool.connect() and begin a transaction on it",
    );
  }
  return {
    query: async (text, values = []) => {
      // Older clients do not tell; they are trusted.
      if (client.getTransactionStatus?.() === "I") {
        throw new ConfigError(
          "no transaction is open on the client: await BEGIN before, and commit after",
        );
      }
      return await client.query(text, values);
    },
  };
}
