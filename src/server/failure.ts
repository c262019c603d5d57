import { ConfigError, InvalidInputError, LimitError, TidemillError } from "../base/errors.ts";
import { sqlState } from "../db/sqlstate.ts";

/** What a caller may know of an error: an error of docs/reference/errors.md. */
export interface Failure {
  readonly code: string;
  readonly message: string;
  readonly retryable: boolean;
  /** 0: no advice. */
  readonly retryAfterMs: number;
}

const MESSAGE_BYTES_MAX = 1_000;
/** A day. A slow quota may ask for years, which no field of 32 bits holds. */
const RETRY_AFTER_MS_MAX = 86_400_000;

/** Said instead of what the database says: its words are for the operator's log. */
const HIDDEN: Readonly<Record<string, string>> = {
  TM_UNAVAILABLE: "the server cannot do this now; try again",
  TM_TIMEOUT: "the server could not do this in time; try again",
  TM_COMMIT_UNKNOWN: "it is not known whether this was stored",
  TM_INVALID_INPUT: "the database refuses this",
};

/** For errors that are nobody's business but ours. */
const INTERNAL: Failure = {
  code: "TM_INTERNAL",
  message: "internal error",
  retryable: false,
  retryAfterMs: 0,
};

export function failureOf(error: unknown): Failure {
  if (!(error instanceof TidemillError)) return INTERNAL;
  const { code, retryable } = error;
  if (code === "TM_SCHEMA" || code === "TM_CONFIG") return INTERNAL;
  const isOurs = !retryable || error instanceof LimitError;
  const isTold = isOurs && !isFromDatabase(error);
  const message = isTold ? shortened(error.message) : (HIDDEN[code] ?? INTERNAL.message);
  const retryAfterMs =
    error instanceof LimitError ? Math.min(error.retryAfterMs, RETRY_AFTER_MS_MAX) : 0;
  return { code, message, retryable, retryAfterMs };
}

/** The same for what a client sent: an option that cannot work is its mistake, not ours. */
export function asInput(error: unknown): unknown {
  return error instanceof ConfigError ? new InvalidInputError(error.message) : error;
}

function isFromDatabase(error: Error): boolean {
  for (let cause = error.cause; cause instanceof Error; cause = cause.cause) {
    if (sqlState(cause)?.length === 5) return true;
  }
  return false;
}

/** Whole characters, in so few bytes that a thousand of them fit into a message. */
function shortened(text: string): string {
  if (Buffer.byteLength(text) <= MESSAGE_BYTES_MAX) return text;
  const cut = Buffer.from(text).subarray(0, MESSAGE_BYTES_MAX).toString();
  return `${cut.replace(/\ufffd+$/u, "")}…`;
}
