import { InvalidInputError } from "../base/errors.ts";
import { refuseUnknown, requireNumber } from "../base/options.ts";
import type { Database } from "../db/database.ts";
import type { PersistedEvent, StreamRef } from "./event.ts";
import { readEventsAfter, readEventsOfStream } from "./sql/read.ts";

export interface ReadStreamOptions {
  /** First version to read, inclusive. Defaults to 1. */
  readonly fromVersion?: bigint | number;
  /** Last version to read, inclusive. Defaults to the newest. */
  readonly toVersion?: bigint | number;
  /** Defaults to all. */
  readonly limit?: number;
}

const LIMIT_MAX = 2 ** 31 - 1;
const VERSION_MAX = 2n ** 63n - 1n;

/** The events of one stream in order. Bounds that exclude everything give an empty list. */
export async function readStream(
  db: Database,
  stream: StreamRef,
  options: ReadStreamOptions = {},
): Promise<PersistedEvent[]> {
  refuseUnknown("readStream", options, ["fromVersion", "toVersion", "limit"]);
  const range = {
    fromVersion: toBigInt("fromVersion", options.fromVersion ?? 1),
    toVersion: toBigInt("toVersion", options.toVersion ?? VERSION_MAX),
    countMax: limitOf(options.limit ?? LIMIT_MAX),
  };
  return await db.withConnection((connection) => readEventsOfStream(connection, stream, range));
}

export interface ReadAllOptions {
  /** Only events above this position. Defaults to 0: from the beginning. */
  readonly after?: bigint | number;
  /** Defaults to 1000. */
  readonly limit?: number;
}

/**
 * Events of all streams by position, as visible now. A lower position may still become visible
 * later: to handle every event once, write a consumer instead of remembering the last position.
 */
export async function readAll(
  db: Database,
  options: ReadAllOptions = {},
): Promise<PersistedEvent[]> {
  refuseUnknown("readAll", options, ["after", "limit"]);
  const after = toBigInt("after", options.after ?? 0);
  const countMax = limitOf(options.limit ?? 1000);
  return await db.withConnection((connection) => readEventsAfter(connection, after, countMax));
}

function limitOf(value: number): number {
  return requireNumber("limit", value, { min: 0, max: LIMIT_MAX, integer: true });
}

function toBigInt(name: string, value: bigint | number): bigint {
  if (typeof value === "bigint") return value;
  if (Number.isSafeInteger(value)) return BigInt(value);
  throw new InvalidInputError(`${name} must be a whole number, not ${value}`);
}
