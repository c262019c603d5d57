import { ConflictError, InvalidInputError } from "../base/errors.ts";
import type { StreamRef } from "./event.ts";

/**
 * What the caller believes of the stream: anything, that it does not exist, or its exact version.
 * Version 0 is a stream without events, so exactly 0 means "no-stream".
 */
export type ExpectedVersion = "any" | "no-stream" | bigint | number;

export type VersionRule =
  | { readonly kind: "any" }
  | { readonly kind: "no-stream" }
  | { readonly kind: "exact"; readonly version: bigint };

export function versionRule(expected: ExpectedVersion = "any"): VersionRule {
  if (expected === "any" || expected === "no-stream") return { kind: expected };
  const isWhole = typeof expected === "bigint" || Number.isSafeInteger(expected);
  if (!isWhole || expected < 0) {
    throw new InvalidInputError(
      `expectedVersion must be "any", "no-stream" or a version of at least 0, not ${expected}`,
    );
  }
  const version = BigInt(expected);
  return version === 0n ? { kind: "no-stream" } : { kind: "exact", version };
}

/**
 * The stream is not at the version the caller expected: somebody appended in between. Read the
 * stream again, decide again. Nothing was written, and the caller's transaction is still usable.
 */
export class WrongExpectedVersionError extends ConflictError {
  override readonly code = "TM_WRONG_EXPECTED_VERSION";
  readonly stream: StreamRef;
  readonly expected: ExpectedVersion;
  readonly actual: bigint;

  constructor(stream: StreamRef, expected: ExpectedVersion, actual: bigint) {
    super(`stream ${stream.type}/${stream.id} is at version ${actual}, expected ${expected}`);
    this.stream = stream;
    this.expected = expected;
    this.actual = actual;
  }
}

/** An event with this id, or this version of the stream, is already in the log. */
export class DuplicateEventError extends ConflictError {
  override readonly code = "TM_DUPLICATE_EVENT";
}
