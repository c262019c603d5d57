import {
  ConfigError,
  ConflictError,
  ForbiddenError,
  InvalidInputError,
  LimitError,
  NotFoundError,
  SchemaError,
  TidemillError,
  TimeoutError,
  UnauthenticatedError,
  UnavailableError,
} from "../../base/errors.ts";
import { sqlState } from "../../db/sqlstate.ts";
import { LeaseLostError } from "../../tasks/task.ts";
import { KeysUnavailableError } from "../auth/issuer-keys.ts";

/** A request that HTTP itself says all about. */
export class HttpError extends TidemillError {
  readonly code: string;
  readonly retryable = false;
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;

  constructor(
    status: number,
    code: string,
    message: string,
    headers: Readonly<Record<string, string>> = {},
  ) {
    super(message);
    this.status = status;
    this.code = code;
    this.headers = headers;
  }
}

export const tooLarge = (bytesMax: number): HttpError =>
  new HttpError(413, "TM_TOO_LARGE", `the body has more than ${bytesMax} bytes`);

export const notJson = (): HttpError =>
  new HttpError(
    415,
    "TM_UNSUPPORTED_MEDIA_TYPE",
    "the body must be JSON, with content-type application/json",
  );

export const noSuchPath = (): HttpError =>
  new HttpError(404, "TM_NOT_FOUND", "there is nothing at this path; see /docs");

export const wrongMethod = (allowed: readonly string[]): HttpError =>
  new HttpError(405, "TM_METHOD_NOT_ALLOWED", `here is ${allowed.join(", ")}`, {
    allow: allowed.join(", "),
  });

/** What a caller is told of an error, in the words of RFC 9457. */
export interface Problem {
  readonly status: number;
  readonly code: string;
  readonly title: string;
  /** Left out where it would tell of the inside. */
  readonly detail: string | undefined;
  readonly headers: Readonly<Record<string, string>>;
  /** Whether somebody should look: the caller is not told what happened. */
  readonly isHidden: boolean;
}

const TITLES: Readonly<Record<number, string>> = {
  400: "The request is not valid",
  401: "Nobody knows who is calling",
  403: "The caller may not do this",
  404: "There is no such thing",
  405: "Not this method",
  409: "The state is not the expected one",
  413: "The request is too large",
  415: "The request is not JSON",
  429: "Too many calls",
  500: "Something went wrong here",
  503: "Not now",
};

const RETRY_SECONDS = 1;

/** The one place where an error becomes an answer. */
export function toProblem(error: unknown): Problem {
  const status = statusOf(error);
  const title = TITLES[status] ?? "The request failed";
  const headers = headersOf(error, status);
  if (!(error instanceof TidemillError) || status === 500) {
    return { status: 500, code: "TM_INTERNAL", title, detail: undefined, headers, isHidden: true };
  }
  const { code } = error;
  if (!repeatsDatabase(error)) {
    return { status, code, title, detail: error.message, headers, isHidden: false };
  }
  return { status, code, title, detail: GENERAL[status], headers, isHidden: true };
}

const GENERAL: Readonly<Record<number, string>> = {
  400: "a value of the request cannot be stored",
  409: "this is there already",
  503: "the database does not answer as it should; try again",
};

/** Whether the message has words of the database or of its driver in it, or its address. */
function repeatsDatabase(error: TidemillError): boolean {
  if (error instanceof KeysUnavailableError) return false;
  const { cause, retryable, code } = error;
  if (cause === undefined) return code === "TM_SCHEMA";
  if (cause instanceof TidemillError) return repeatsDatabase(cause);
  return retryable || code === "TM_SCHEMA" || sqlState(cause) !== undefined;
}

function statusOf(error: unknown): number {
  if (error instanceof HttpError) return error.status;
  if (error instanceof InvalidInputError) return 400;
  if (error instanceof UnauthenticatedError) return 401;
  if (error instanceof ForbiddenError) return 403;
  if (error instanceof NotFoundError) return 404;
  if (error instanceof ConflictError || error instanceof LeaseLostError) return 409;
  if (error instanceof LimitError) return 429;
  if (error instanceof UnavailableError || error instanceof SchemaError) return 503;
  // Of a request it is an option that the engine refused; with a cause it is one of the server.
  if (error instanceof ConfigError) return error.cause === undefined ? 400 : 503;
  return 500;
}

function headersOf(error: unknown, status: number): Record<string, string> {
  if (error instanceof HttpError) return { ...error.headers };
  if (status === 401) return { "www-authenticate": 'Bearer realm="tidemill"' };
  if (error instanceof LimitError) {
    return { "retry-after": String(Math.max(RETRY_SECONDS, Math.ceil(error.retryAfterMs / 1000))) };
  }
  if (status === 503 && !(error instanceof TimeoutError)) {
    return { "retry-after": String(RETRY_SECONDS) };
  }
  return {};
}

/** Where /docs says more of a code. */
export const problemType = (code: string): string => `/docs#${code.toLowerCase()}`;
