import {
  ConfigError,
  InvalidInputError,
  messageOf,
  SchemaError,
  TidemillError,
  TimeoutError,
  UnavailableError,
} from "../base/errors.ts";

interface CodedError extends Error {
  readonly code: string;
  readonly constraint?: string;
}

const NETWORK = new Set([
  "ECONNREFUSED",
  "ECONNRESET",
  "EPIPE",
  "ETIMEDOUT",
  "EHOSTUNREACH",
  "ENETUNREACH",
  "ENOTFOUND",
  "EAI_AGAIN",
]);

/** node-postgres and poolers raise these without a code. */
const CONNECTION_MESSAGES = new RegExp(
  [
    "connection terminated",
    "connection ended",
    "connection error",
    "not queryable",
    "timeout expired",
    "timeout exceeded",
    "client was closed",
    "server conn crashed",
    "query_wait_timeout",
    "server_login_retry",
    "pgbouncer",
  ].join("|"),
  "i",
);

export function sqlState(error: unknown): string | undefined {
  return error instanceof Error && "code" in error && typeof error.code === "string"
    ? error.code
    : undefined;
}

export function constraintOf(error: unknown): string | undefined {
  return error instanceof Error ? (error as CodedError).constraint : undefined;
}

/** The server's own code, also of an error that was mapped to one of ours. */
function serverCode(error: unknown): string | undefined {
  return sqlState(error instanceof TidemillError ? error.cause : error);
}

export const isDivisionByZero = (error: unknown): boolean => serverCode(error) === "22012";

export const isLockTimeout = (error: unknown): boolean => serverCode(error) === "55P03";

/**
 * Whether the server refused what was in the statement: its data, what it does with some rows
 * together, a constraint, a size, the word of a trigger. Sent again it is refused again.
 */
export function isRefusal(error: unknown): boolean {
  return /^(21|22|23|44|54|P0)...$/.test(serverCode(error) ?? "");
}

/**
 * Whether the server said in answer to COMMIT that it did not commit. A session that is ended may
 * have committed before it was told to go, and a pooler does not know what its server did.
 */
export function wasRolledBack(error: unknown): boolean {
  const code = sqlState(error) ?? "";
  if (!/^[0-9A-Z]{5}$/.test(code) || NETWORK.has(code)) return false;
  return !/^(08|57P0|58|XX)/.test(code);
}

export const isUniqueViolation = (error: unknown): boolean => sqlState(error) === "23505";

/**
 * Whether the database, not the caller's work, is the cause: unreachable, restarting, full, or a
 * conflict between transactions that goes away when they are run again.
 */
export function isUnavailable(error: unknown): boolean {
  if (error instanceof TidemillError) return error.retryable;
  if (error instanceof AggregateError && error.errors.length > 0) {
    return error.errors.every(isUnavailable);
  }
  const code = sqlState(error);
  if (code === undefined) {
    return (
      error instanceof Error && (CONNECTION_MESSAGES.test(error.message) || isReadTimeout(error))
    );
  }
  if (NETWORK.has(code)) return true;
  return /^(08...|57P0.|53...|40001|40P01|55P03|57014|58...|25P03)$/.test(code);
}

export function isReadTimeout(error: unknown): boolean {
  return error instanceof Error && error.message === "Query read timeout";
}

/** Why a connection could not be made, with the address but never the password. */
export function mapConnectError(error: unknown, url: string): Error {
  const where = addressOf(url);
  const code = sqlState(error);
  if (code === "3D000" || code === "28P01" || code === "28000") {
    return new ConfigError(`${where} refuses the connection: ${messageOf(error)}`, {
      cause: error,
    });
  }
  if (!isUnavailable(error)) return mapDatabaseError(error, `connect to ${where}`);
  return new UnavailableError(
    `cannot reach the database at ${where} (${messageOf(error)}); ` +
      "check that it runs and that the address is right",
    { cause: error },
  );
}

function addressOf(url: string): string {
  try {
    const { hostname, port, pathname } = new URL(url);
    return `${hostname || "localhost"}:${port || "5432"}${pathname}`;
  } catch {
    return "the given address";
  }
}

/** The one place where what PostgreSQL and its driver raise becomes an error of ours. */
export function mapDatabaseError(error: unknown, doing: string): Error {
  if (error instanceof TidemillError) return error;
  const message = messageOf(error);
  const code = sqlState(error);
  if (isReadTimeout(error) || code === "57014") {
    return new TimeoutError(`${doing}: the database did not answer in time`, { cause: error });
  }
  if (isUnavailable(error)) return new UnavailableError(`${doing}: ${message}`, { cause: error });
  if (code === "42P01" || code === "3F000" || code === "42703" || code === "42883") {
    return new SchemaError(`${doing}: ${message}; run "tidemill migrate"`, { cause: error });
  }
  if (code === "25006") {
    return new SchemaError(
      `${doing}: this database is read-only (a replica?); use the primary's address`,
      { cause: error },
    );
  }
  if (code?.startsWith("22") === true || code === "23502") {
    return new InvalidInputError(`${doing}: ${message}`, { cause: error });
  }
  return error instanceof Error ? error : new Error(message);
}
