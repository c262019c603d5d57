import { indentJson, rawMembers } from "../json-text.ts";
import type { Api } from "./http.ts";
import type { EventView } from "./types.ts";

export interface FoundEvent {
  readonly event: EventView;
  /** As it was written, indented. */
  readonly text: string;
}

/** Null when there is none at this position. */
export async function readEvent(
  api: Api,
  position: string,
  signal: AbortSignal,
): Promise<FoundEvent | null> {
  const after = String(BigInt(position) - 1n);
  const text = await api.getText(`/v1/events?after=${after}&limit=1`, signal);
  const { events } = JSON.parse(text) as { events: readonly EventView[] };
  const [event] = events;
  if (event?.position !== position) return null;
  const list = indentJson(rawMembers(text).get("events") ?? "").slice(1, -1);
  return { event, text: list.trim().replaceAll("\n  ", "\n") };
}
