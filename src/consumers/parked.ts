import type { Queryable } from "../db/database.ts";
import type { StreamRef } from "../events/event.ts";
import { listParkedStreams, type ParkedStreamRow } from "./sql/parked-list.ts";

export interface ParkedStreamView extends StreamRef {
  readonly since: Date;
  /** How many events wait; at most 1,000 are counted. */
  readonly events: number;
  /** Of the first of them, on which the handler failed. */
  readonly position: string | undefined;
}

/** Streams of one consumer that were set aside because of the same. */
export interface ParkedGroup {
  readonly consumer: string;
  readonly state: "parked" | "replaying";
  /** With # for each number. */
  readonly error: string;
  /** Of the newest. */
  readonly stack: string | undefined;
  readonly events: number;
  readonly firstAt: Date;
  readonly lastAt: Date;
  /** Newest first. */
  readonly streams: readonly ParkedStreamView[];
}

export interface ParkedGroups {
  readonly groups: readonly ParkedGroup[];
  /** There are more streams than those that were looked at. */
  readonly isCut: boolean;
}

const STREAMS_MAX = 1_000;
const EVENTS_MAX = 1_000;
const ERROR_MAX = 400;

/** What consumers set aside, by why, the most events first: of the newest 1,000 streams. */
export async function readParkedGroups(db: Queryable): Promise<ParkedGroups> {
  const rows = await listParkedStreams(db, STREAMS_MAX + 1, EVENTS_MAX);
  const groups = new Map<string, ParkedStreamRow[]>();
  for (const row of rows.slice(0, STREAMS_MAX)) {
    const key = JSON.stringify([row.consumer, row.state, withoutNumbers(row.error)]);
    groups.set(key, [...(groups.get(key) ?? []), row]);
  }
  const views = [...groups.values()].map(toGroup).sort((a, b) => b.events - a.events);
  return { groups: views, isCut: rows.length > STREAMS_MAX };
}

/** Numbers in a message are mostly ids: without them, what failed alike is one group. */
const withoutNumbers = (error: string): string => error.slice(0, ERROR_MAX).replace(/\d+/g, "#");

function toGroup(rows: readonly ParkedStreamRow[]): ParkedGroup {
  const [newest] = rows;
  const oldest = rows.at(-1);
  if (newest === undefined || oldest === undefined) throw new Error("a group has a stream");
  return {
    consumer: newest.consumer,
    state: newest.state,
    error: withoutNumbers(newest.error),
    stack: newest.stack ?? undefined,
    events: rows.reduce((sum, { events }) => sum + events, 0),
    firstAt: oldest.since,
    lastAt: newest.since,
    streams: rows.map(({ type, id, since, events, position }) => ({
      type,
      id,
      since,
      events,
      position: position ?? undefined,
    })),
  };
}
