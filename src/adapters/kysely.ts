import { ConfigError } from "../base/errors.ts";
import type { SqlExecutor } from "../db/executor.ts";

/** What we call of a Kysely transaction. */
export interface KyselyTransaction {
  readonly isTransaction: true;
  getExecutor(): { readonly adapter: KyselyAdapter };
  withoutPlugins(): { executeQuery(query: KyselyQuery): Promise<{ rows: unknown[] }> };
}

export interface KyselyAdapter {
  readonly supportsTransactionalDdl?: boolean;
  readonly supportsReturning: boolean;
}

/** As `CompiledQuery.raw` makes it. */
export interface KyselyQuery {
  readonly sql: string;
  readonly parameters: readonly unknown[];
  readonly query: {
    readonly kind: "RawNode";
    readonly sqlFragments: readonly string[];
    readonly parameters: readonly [];
  };
  readonly queryId: { readonly queryId: string };
}

/**
 * The `trx` of `db.transaction().execute()` or `db.startTransaction().execute()`, with the
 * PostgreSQL dialect over node-postgres. Plugins are left out: they would rename our columns.
 */
export function fromKysely(trx: KyselyTransaction): SqlExecutor {
  if (!trx?.isTransaction || typeof trx.withoutPlugins !== "function") {
    throw new ConfigError(
      "fromKysely needs the trx that db.transaction().execute() gives, not the db itself",
    );
  }
  const { adapter } = trx.getExecutor();
  // Of Kysely's dialects only PostgreSQL's can do both. Class names do not survive minifiers.
  if (adapter.supportsTransactionalDdl !== true || !adapter.supportsReturning) {
    throw new ConfigError("fromKysely needs Kysely with PostgresDialect");
  }
  const plain = trx.withoutPlugins();
  return {
    query: async (text, values = []) => {
      const { rows } = await plain.executeQuery({
        sql: text,
        parameters: values,
        query: { kind: "RawNode", sqlFragments: [text], parameters: [] },
        queryId: { queryId: "tidemill" },
      });
      return { rows };
    },
  };
}
