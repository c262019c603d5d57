import { ConfigError } from "../base/errors.ts";
import type { SqlExecutor } from "../db/executor.ts";
import { fromPg, type PgClient } from "./pg.ts";

/** What we call of a knex transaction. */
export interface KnexTransaction {
  readonly isTransaction?: boolean;
  readonly client: KnexClient;
  isCompleted(): boolean;
}

export interface KnexClient {
  readonly driverName: string;
  acquireConnection(): Promise<PgClient>;
}

/**
 * The `trx` of `knex.transaction()`. Statements go to the connection of the transaction and not
 * through `raw()`, which takes every question mark, also that of an operator, for a parameter.
 */
export function fromKnex(trx: KnexTransaction): SqlExecutor {
  if (trx?.isTransaction !== true || typeof trx.client?.acquireConnection !== "function") {
    throw new ConfigError("fromKnex needs the trx that knex.transaction() gives, not knex itself");
  }
  const { driverName } = trx.client;
  if (driverName !== "pg") {
    throw new ConfigError(`fromKnex needs knex with client "pg", not "${driverName}"`);
  }
  return {
    query: async (text, values = []) => {
      // The connection may be another transaction's by now.
      if (trx.isCompleted()) throw new ConfigError("the knex transaction has already ended");
      const connection = await trx.client.acquireConnection();
      return await fromPg(connection).query(text, values);
    },
  };
}
