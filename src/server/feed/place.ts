/**
 * Where somebody is in the feed: everything up to the change with this index of the row at this
 * position was told, or all of the row when there is no index. Good within its era only.
 */
export interface Place {
  readonly era: string;
  readonly position: bigint;
  /** Counted from 1. */
  readonly index?: number;
}

export function writePlace({ era, position, index }: Place): string {
  return index === undefined ? `${era}-${position}` : `${era}-${position}-${index}`;
}

const PLACE = /^([0-9a-f]{12})-(\d{1,18})(?:-([1-9]\d{0,8}))?$/;

/** Undefined: no feed ever gave that. */
export function readPlace(text: string): Place | undefined {
  const [, era, position, index] = PLACE.exec(text) ?? [];
  if (era === undefined || position === undefined) return undefined;
  const place = { era, position: BigInt(position) };
  return index === undefined ? place : { ...place, index: Number(index) };
}
