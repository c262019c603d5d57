import { inspect } from "node:util";

/**
 * Every error the library raises on purpose. `code` is stable and documented in
 * `docs/reference/errors.md`; `retryable` says whether the same call may succeed later.
 */
export abstract class TidemillError extends Error {
  abstract readonly code: string;
  abstract readonly retryable: boolean;

  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** A setting cannot work: fix the configuration and start again. Nothing was written. */
export class ConfigError extends TidemillError {
  readonly code = "TM_CONFIG";
  readonly retryable = false;
}

/** The tables are missing, older or newer than this version needs. Run `tidemill migrate`. */
export class SchemaError extends TidemillError {
  readonly code = "TM_SCHEMA";
  readonly retryable = false;
}

/** The caller passed something that can never be accepted. Nothing was written. */
export class InvalidInputError extends TidemillError {
  readonly code = "TM_INVALID_INPUT";
  readonly retryable = false;
}

/** Which check a credential did not pass. */
export type Refusal =
  | "missing"
  | "malformed"
  | "unknown"
  | "algorithm"
  | "signature"
  | "claim"
  | "tenant"
  | "expired"
  | "revoked";

/** What the holder of a credential may know: only what is said after its secret was proven. */
const TOLD: Readonly<Partial<Record<Refusal, string>>> = {
  missing: "no token was given",
  expired: "the token has expired",
  revoked: "the token was revoked",
};

/**
 * Nobody knows who is calling: get another token. The message is for the caller and does not tell
 * which check failed; `reason` and `detail` are for the log, and do not appear where the error is
 * shown or turned into JSON. None of them holds any part of the token.
 */
export class UnauthenticatedError extends TidemillError {
  readonly code = "TM_UNAUTHENTICATED";
  readonly retryable = false;
  readonly #reason: Refusal;
  readonly #detail: string;

  constructor(reason: Refusal, detail = "") {
    super(TOLD[reason] ?? "the token is not valid");
    this.#reason = reason;
    this.#detail = detail;
  }

  get reason(): Refusal {
    return this.#reason;
  }

  get detail(): string {
    return this.#detail;
  }
}

/** The caller is known and may not do this. Ask for a token that has what is missing. */
export class ForbiddenError extends TidemillError {
  readonly code = "TM_FORBIDDEN";
  readonly retryable = false;
}

/** What the caller named does not exist. */
export class NotFoundError extends TidemillError {
  readonly code = "TM_NOT_FOUND";
  readonly retryable = false;
}

/** The state the caller expected is not the state that was found. Read again, then decide. */
export class ConflictError extends TidemillError {
  readonly code: string = "TM_CONFLICT";
  readonly retryable = false;
}

/** The database cannot be reached or refused for a passing reason. The same call may succeed. */
export class UnavailableError extends TidemillError {
  readonly code: string = "TM_UNAVAILABLE";
  readonly retryable = true;
}

/** A wait ended before what it waited for. What was awaited may still happen. */
export class TimeoutError extends UnavailableError {
  override readonly code = "TM_TIMEOUT";
}

/**
 * COMMIT was sent and not answered: what was to be written is stored, or it is not. Repeat only
 * what an id or an idempotency key keeps from being written twice.
 */
export class CommitUnknownError extends UnavailableError {
  override readonly code = "TM_COMMIT_UNKNOWN";
}

/** More than is allowed at once, or in this time. The same call may succeed a little later. */
export class LimitError extends TidemillError {
  readonly code: string = "TM_LIMIT";
  readonly retryable = true;
  /** When to try again; 0 for no advice. */
  readonly retryAfterMs: number;

  constructor(message: string, retryAfterMs = 0, options?: ErrorOptions) {
    super(message, options);
    this.retryAfterMs = retryAfterMs;
  }
}

/** The message of anything that was thrown, for logs and for stored failure reasons. */
export function messageOf(error: unknown): string {
  if (error instanceof AggregateError && error.message === "") {
    return error.errors.map(messageOf).join("; ");
  }
  if (error instanceof Error) {
    const message: unknown = error.message; // Somebody may have put anything there.
    return storable(typeof message === "string" ? message : inspect(message));
  }
  return storable(typeof error === "string" ? error : inspect(error));
}

/** Separators of our statements, and what no text of PostgreSQL can hold. */
const RESERVED = ["\u0000", "\u001d", "\u001e", "\u001f"];

export function hasReserved(text: string): boolean {
  return RESERVED.some((character) => text.includes(character));
}

/** Half a character, such as an emoji that was cut in two, is no text to PostgreSQL. */
export function wellFormed(text: string): string {
  return text.replace(/\p{Surrogate}/gu, "\ufffd");
}

/** PostgreSQL cannot store a zero byte, and a SyntaxError quotes the payload that it is about. */
export function storable(text: string): string {
  return wellFormed(text.replaceAll("\u0000", "\\0"));
}
