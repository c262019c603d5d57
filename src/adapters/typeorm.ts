import { ConfigError } from "../base/errors.ts";
import type { SqlExecutor } from "../db/executor.ts";

/** What we call of a TypeORM query runner. */
export interface TypeOrmQueryRunner {
  readonly isTransactionActive: boolean;
  readonly dataSource?: TypeOrmDataSource;
  /** The name of `dataSource` before TypeORM 1. */
  readonly connection?: TypeOrmDataSource;
  query(text: string, values: unknown[], structured: true): Promise<{ records: unknown[] }>;
}

export interface TypeOrmDataSource {
  readonly options: { readonly type: string };
}

/** The manager that `dataSource.transaction()` gives has a query runner; others have none. */
export interface TypeOrmEntityManager {
  readonly queryRunner?: TypeOrmQueryRunner;
}

/** The manager of `dataSource.transaction()`, or a query runner on which one was started. */
export function fromTypeOrm(source: TypeOrmEntityManager | TypeOrmQueryRunner): SqlExecutor {
  const runner = runnerOf(source);
  if (runner === undefined) {
    throw new ConfigError(
      "fromTypeOrm needs the manager that dataSource.transaction() gives, or a query runner; " +
        "a data source and its own manager have no transaction",
    );
  }
  const type = (runner.dataSource ?? runner.connection)?.options.type;
  if (type !== "postgres") {
    throw new ConfigError(`fromTypeOrm needs a data source of type "postgres", not "${type}"`);
  }
  refuseEnded(runner);
  return {
    query: async (text, values = []) => {
      refuseEnded(runner);
      // Unstructured, an UPDATE gives its rows in a pair, and other statements do not.
      const { records } = await runner.query(text, values, true);
      return { rows: records };
    },
  };
}

function runnerOf(
  source: TypeOrmEntityManager | TypeOrmQueryRunner | undefined,
): TypeOrmQueryRunner | undefined {
  if (typeof source !== "object" || source === null) return undefined;
  if ("isTransactionActive" in source) return source;
  return "queryRunner" in source ? source.queryRunner : undefined;
}

function refuseEnded(runner: TypeOrmQueryRunner): void {
  if (runner.isTransactionActive) return;
  throw new ConfigError(
    "no transaction is open on the query runner: await startTransaction() before",
  );
}
