import { status } from "@grpc/grpc-js";
import {
  CommitUnknownError,
  ConflictError,
  ForbiddenError,
  InvalidInputError,
  LimitError,
  NotFoundError,
  TidemillError,
  TimeoutError,
  UnavailableError,
} from "../base/errors.ts";

/** What a server says of something that it did not do. */
export interface RemoteFailure {
  readonly code: string;
  readonly message: string;
  readonly retryable: boolean;
  /** 0: no advice. */
  readonly retryAfterMs: number;
}

/** A server refused with a code that has no class of its own here: compare `code`. */
export class RemoteError extends TidemillError {
  readonly code: string;
  readonly retryable: boolean;
  /** When to try again; 0 for no advice. */
  readonly retryAfterMs: number;

  constructor({ code, message, retryable, retryAfterMs }: RemoteFailure, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
    this.retryable = retryable;
    this.retryAfterMs = retryAfterMs;
  }
}

type ErrorClass = new (message: string) => TidemillError;

/** Those whose class says all that the code does. */
const CLASSES: Readonly<Record<string, ErrorClass>> = {
  TM_INVALID_INPUT: InvalidInputError,
  TM_FORBIDDEN: ForbiddenError,
  TM_NOT_FOUND: NotFoundError,
  TM_CONFLICT: ConflictError,
  TM_UNAVAILABLE: UnavailableError,
  TM_TIMEOUT: TimeoutError,
  TM_COMMIT_UNKNOWN: CommitUnknownError,
};

/** The error that the server had, as far as there is a class for it. */
export function errorOf(failure: RemoteFailure): TidemillError {
  if (failure.code === "TM_LIMIT") return new LimitError(failure.message, failure.retryAfterMs);
  const Known = Object.hasOwn(CLASSES, failure.code) ? CLASSES[failure.code] : undefined;
  return Known === undefined ? new RemoteError(failure) : new Known(failure.message);
}

/** How a stream ended. */
export interface StreamEnd {
  readonly code: status;
  readonly details: string;
}

const CODES: Readonly<Partial<Record<status, string>>> = {
  [status.INVALID_ARGUMENT]: "TM_INVALID_INPUT",
  [status.UNAUTHENTICATED]: "TM_UNAUTHENTICATED",
  [status.PERMISSION_DENIED]: "TM_FORBIDDEN",
  [status.NOT_FOUND]: "TM_NOT_FOUND",
};

export function errorOfEnd({ code, details }: StreamEnd, address: string): TidemillError {
  const known = CODES[code];
  const message = `${address}: ${details === "" ? `the stream ended (${status[code]})` : details}`;
  if (known !== undefined) return errorOf({ code: known, message, ...NOT_AGAIN });
  if (code === status.UNIMPLEMENTED) {
    return new InvalidInputError(`${address} serves no such stream; is the port right?`);
  }
  return new UnavailableError(message);
}

const NOT_AGAIN = { retryable: false, retryAfterMs: 0 };
