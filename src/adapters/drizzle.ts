import { ConfigError } from "../base/errors.ts";
import type { SqlExecutor } from "../db/executor.ts";
import { fromPg, type PgClient } from "./pg.ts";
import { fromPostgresJs, type PostgresJsTransaction } from "./postgres-js.ts";

/** What we call of a Drizzle transaction. Only transactions have `rollback`. */
export interface DrizzleTransaction {
  readonly _: { readonly session: object };
  rollback(): never;
}

/** How Drizzle itself tells its classes apart: class names do not survive minifiers. */
const KIND = Symbol.for("drizzle:entityKind");

/**
 * The `tx` of `db.transaction()`, of drizzle-orm/node-postgres or drizzle-orm/postgres-js.
 * Statements go to the driver's own transaction, because Drizzle leaves dates as text.
 */
export function fromDrizzle(tx: DrizzleTransaction): SqlExecutor {
  const kind = kindOf(tx);
  if (kind === undefined || kind.endsWith("Database")) {
    throw new ConfigError(
      "fromDrizzle needs the tx that db.transaction() gives, not the db itself",
    );
  }
  if (kind === "NodePgTransaction") return fromPg(clientOf(tx) as PgClient);
  if (kind === "PostgresJsTransaction") {
    return fromPostgresJs(clientOf(tx) as PostgresJsTransaction);
  }
  throw new ConfigError(
    `fromDrizzle cannot use a ${kind}: use drizzle-orm/node-postgres or drizzle-orm/postgres-js, ` +
      "or pass as tx an object whose query(text, values) runs on your driver's transaction",
  );
}

function kindOf(tx: unknown): string | undefined {
  if (typeof tx !== "object" || tx === null) return undefined;
  const kind: unknown = Reflect.get(tx.constructor, KIND);
  return typeof kind === "string" ? kind : undefined;
}

function clientOf(tx: DrizzleTransaction): unknown {
  return Reflect.get(tx._.session, "client");
}
