import type { Consumer } from "../../api/types.ts";
import { pluralCut } from "../../format.ts";

/** "3 events of 2 streams". Streams are no more than events: they are cut only where both are. */
export function describeParked({ parkedEvents, parkedStreams, isParkedCut }: Consumer): string {
  const isCut = isParkedCut && parkedStreams === parkedEvents;
  const streams = pluralCut(parkedStreams, isCut, "stream");
  return `${pluralCut(parkedEvents, isParkedCut, "event")} of ${streams}`;
}
