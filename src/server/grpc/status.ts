import { status } from "@grpc/grpc-js";
import type { UnauthenticatedError } from "../../base/errors.ts";
import { failureOf } from "../failure.ts";
import { StreamError } from "./peer.ts";

const STATUS: Readonly<Record<string, status>> = {
  TM_INVALID_INPUT: status.INVALID_ARGUMENT,
  TM_UNAUTHENTICATED: status.UNAUTHENTICATED,
  TM_FORBIDDEN: status.PERMISSION_DENIED,
  TM_NOT_FOUND: status.NOT_FOUND,
  TM_CONFLICT: status.ABORTED,
  TM_IDEMPOTENCY_CONFLICT: status.ALREADY_EXISTS,
  TM_LEASE_LOST: status.FAILED_PRECONDITION,
  TM_LIMIT: status.RESOURCE_EXHAUSTED,
  TM_QUOTA: status.RESOURCE_EXHAUSTED,
  TM_UNAVAILABLE: status.UNAVAILABLE,
  TM_TIMEOUT: status.UNAVAILABLE,
  TM_COMMIT_UNKNOWN: status.UNAVAILABLE,
};

/** The status that ends a stream for an error, in words that its client may read. */
export function streamErrorOf(error: unknown): StreamError {
  if (error instanceof StreamError) return error;
  const { code, message } = failureOf(error);
  return new StreamError(STATUS[code] ?? status.INTERNAL, message);
}

/** How CodeQ's streams end for a token that is not good. */
export function codeqRefusal({ reason, message }: UnauthenticatedError): StreamError {
  return reason === "tenant"
    ? new StreamError(status.PERMISSION_DENIED, "invalid tenant claims")
    : new StreamError(status.UNAUTHENTICATED, `auth failed: ${message}`);
}
