/** A field that is a message, or one of many. Fields that are neither need not be named. */
export interface FieldShape {
  /** One of a list: it counts. */
  readonly isEntry?: true;
  /** What is in it, if it is a message. */
  readonly fields?: MessageShape;
}

/** The fields of a message, by their numbers. */
export type MessageShape = Readonly<Record<number, FieldShape>>;

export interface MeasureLimits {
  readonly entriesMax: number;
  /** Of all messages together: a field that comes a million times costs, though the last counts. */
  readonly fieldsMax: number;
}

/** How many entries there are, or why the message must not be decoded. */
export type Measured = number | "malformed" | "too-many";

interface Walk {
  readonly bytes: Uint8Array;
  readonly limits: MeasureLimits;
  at: number;
  entries: number;
  fields: number;
}

const VARINT = 0;
const FIXED_64 = 1;
const LENGTH = 2;
const FIXED_32 = 5;

/**
 * Counts what is in a message before anything is made of it: a few megabytes of bytes can become
 * millions of objects. Stops at the first entry too many. Groups, which proto3 does not have, are
 * malformed, and so is whatever a decoder would stop at.
 */
export function measure(bytes: Uint8Array, shape: MessageShape, limits: MeasureLimits): Measured {
  const walk: Walk = { bytes, limits, at: 0, entries: 0, fields: 0 };
  const fault = walkMessage(walk, bytes.length, shape);
  return fault ?? walk.entries;
}

type Fault = Exclude<Measured, number> | undefined;

function walkMessage(walk: Walk, end: number, shape: MessageShape): Fault {
  while (walk.at < end) {
    const tag = readVarint(walk, end);
    if (!(tag >= 8 && tag < 2 ** 32)) return "malformed";
    const number = tag >>> 3;
    walk.fields += 1;
    if (walk.fields > walk.limits.fieldsMax) return "too-many";
    const fault = walkField(walk, end, tag & 7, shape[number]);
    if (fault !== undefined) return fault;
  }
  return undefined;
}

function walkField(walk: Walk, end: number, kind: number, field: FieldShape | undefined): Fault {
  if (field?.isEntry === true) {
    walk.entries += 1;
    if (walk.entries > walk.limits.entriesMax) return "too-many";
  }
  if (kind === VARINT) return Number.isNaN(readVarint(walk, end)) ? "malformed" : undefined;
  let size = kind === FIXED_64 ? 8 : kind === FIXED_32 ? 4 : Number.NaN;
  if (kind === LENGTH) size = readVarint(walk, end);
  const next = walk.at + size;
  if (!(next <= end)) return "malformed";
  if (kind === LENGTH && field?.fields !== undefined) return walkMessage(walk, next, field.fields);
  walk.at = next;
  return undefined;
}

/** NaN when it does not end. Beyond 2 ** 53 it is not exact, and too large for whatever it is. */
function readVarint(walk: Walk, end: number): number {
  const first = walk.bytes[walk.at] ?? 0;
  if (first < 0x80 && walk.at < end) {
    walk.at += 1;
    return first; // As nearly all are.
  }
  let value = 0;
  for (let nth = 0; nth < 10 && walk.at < end; nth += 1) {
    const byte = walk.bytes[walk.at] ?? 0;
    walk.at += 1;
    value += (byte & 0x7f) * 2 ** (7 * nth);
    if (byte < 0x80) return value;
  }
  return Number.NaN;
}
