/** What became of a task. `purged` ones are gone from the dead letters or from history. */
export const FEED_STATES = [
  "scheduled",
  "pending",
  "running",
  "completed",
  "failed",
  "dead",
  "cancelled",
  "purged",
] as const;
export type FeedState = (typeof FEED_STATES)[number];

/** What an event is about, and its name. */
export const FEED_KINDS = ["task", "consumer", "worker", "ring", "gap", "act"] as const;
export type FeedKind = (typeof FEED_KINDS)[number];

/** One message of server-sent events. `data` is JSON. */
export function writeEvent(event: string, data: object, id?: string): string {
  const place = id === undefined ? "" : `id: ${id}\n`;
  return `${place}event: ${event}\ndata: ${JSON.stringify(data)}\n\n`;
}

/** Says that the stream is alive; nobody is told. */
export const HEARTBEAT = ": heartbeat\n\n";
