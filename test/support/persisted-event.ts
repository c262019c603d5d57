import { PersistedEvent } from "../../src/events/event.ts";

/** An event as if read from the log, for tests that need no database. */
export function eventAt(position: bigint | number, stream = "1", payloadBytes = 1): PersistedEvent {
  const at = String(position);
  const id = `00000000-0000-0000-0000-${at.padStart(12, "0")}`;
  const payload = "61".repeat(payloadBytes);
  const none = [null, null, null, null];
  return new PersistedEvent([at, "Thing", stream, "1", id, "Done", "1", payload, ...none, "0"]);
}

export const eventsAt = (...positions: number[]): PersistedEvent[] =>
  positions.map((position) => eventAt(position));
