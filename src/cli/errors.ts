import { ConfigError, messageOf } from "../base/errors.ts";
import { sqlState } from "../db/sqlstate.ts";

/** The command line itself is wrong. Nothing was read or written. */
export class UsageError extends ConfigError {}

export const EXIT_FAILED = 1;
export const EXIT_USAGE = 2;

export function exitCodeOf(error: unknown): number {
  return error instanceof ConfigError ? EXIT_USAGE : EXIT_FAILED;
}

/** Everything that went wrong in one line that says what to do. */
export function describeError(error: unknown): string {
  if (sqlState(error) === "ERR_INVALID_URL") {
    return "the database address is not a URL; encode special characters in it, such as # as %23";
  }
  return oneLine(messageOf(error)) || "failed without a message; run again with --debug";
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
