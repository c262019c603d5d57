import { ConfigError, messageOf, UnavailableError } from "../base/errors.ts";
import { sqlState } from "../db/sqlstate.ts";

/** The command line itself is wrong. Nothing was read or written. */
export class UsageError extends ConfigError {}

export const EXIT_FAILED = 1;
export const EXIT_USAGE = 2;

export function exitCodeOf(error: unknown): number {
  return error instanceof ConfigError ? EXIT_USAGE : EXIT_FAILED;
}

const CONNECTING = /^connect to the database: /;
/** Wrong password, no such role, no such database. */
const REFUSED_AT_THE_DOOR = new Set(["28P01", "28000", "3D000"]);

/** Everything that went wrong in one line that says what to do. */
export function describeError(error: unknown): string {
  const line = oneLine(messageOf(error));
  const code = sqlState(error) ?? "";
  if (code === "ERR_INVALID_URL") {
    return "the database address is not a URL; encode special characters of the password (# is %23)";
  }
  const isUnreachable = error instanceof UnavailableError && CONNECTING.test(line);
  if (isUnreachable || REFUSED_AT_THE_DOOR.has(code)) {
    const reason = line.replace(CONNECTING, "");
    return (
      `cannot connect to the database: ${reason}; ` +
      "check that it runs, and --database-url or DATABASE_URL"
    );
  }
  return line === "" ? "failed without a message; run again with --debug" : line;
}

export function oneLine(text: string): string {
  return text.replace(/\s*\n\s*/g, " ").trim();
}

/** The stack with every cause, for --debug. */
export function describeStack(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const stack = error.stack ?? error.message;
  return error.cause === undefined ? stack : `${stack}\ncaused by: ${describeStack(error.cause)}`;
}
