import type { Worker } from "../../api/types.ts";
import type { Moment } from "../../live/live-state.ts";

/** Two looks at the same heartbeat differ by what the clocks and the way took. */
const SAME_SECONDS = 0.5;
/** Looks are two seconds apart: a silence shorter than two of them may be none. */
const UNSEEN_SECONDS = 4.5;
/** Between looks that are further apart there may be heartbeats that nobody saw. */
const CLOSE_SECONDS = 2.5;

/** A heartbeat as it was seen. */
interface Heard {
  readonly at: number;
  /** The first look at it, and the last: until then there was no other. */
  readonly seenAt: number;
  readonly until: number;
}

/** Each heartbeat once, however often it was looked at; oldest first. */
function heardOf(moments: readonly Moment[], worker: string): Heard[] {
  const heard: Heard[] = [];
  for (const { beats: told, serverAt } of moments) {
    const at = told[worker];
    const last = heard.at(-1);
    if (at === undefined) continue;
    if (last === undefined || at - last.at >= SAME_SECONDS) {
      heard.push({ at, seenAt: serverAt, until: serverAt });
    } else heard.splice(-1, 1, { ...last, until: serverAt });
  }
  return heard;
}

/** When a worker was heard, by the clock of the database. */
export const beatsOf = (moments: readonly Moment[], worker: string): number[] =>
  heardOf(moments, worker).map(({ at }) => at);

/** What its silence means: when it is taken for dead, and when its tasks are free for others. */
export interface Timing {
  readonly heartbeatSeconds: number;
  /** How long it may be silent. */
  readonly timeoutSeconds: number;
  /** How long tasks are its own without being renewed. */
  readonly leaseSeconds: number;
}

/** As the worker says; members of other programs say nothing, and have the defaults. */
export function timingOf({ load }: Pick<Worker, "load">): Timing {
  const seconds = (name: string, otherwise: number): number => {
    const value = load[name];
    return typeof value === "number" && value > 0 ? value : otherwise;
  };
  return {
    heartbeatSeconds: seconds("heartbeatSeconds", 3),
    timeoutSeconds: seconds("timeoutSeconds", 10),
    leaseSeconds: seconds("leaseSeconds", 30),
  };
}

export type MarkKind = "joined" | "late" | "lost" | "back" | "dead" | "stopped";

/** Something that happened to a worker. */
export interface Mark {
  readonly at: number;
  readonly kind: MarkKind;
  /** Of a silence: how long it was, so far. */
  readonly seconds?: number;
}

export interface Lifeline {
  readonly beats: readonly number[];
  readonly timing: Timing;
  /** In order. */
  readonly marks: readonly Mark[];
}

/**
 * What became of a worker, as far as it was watched and its row tells: silences that were too long,
 * the end of them, when it came and how it ended. All by the clock of the database.
 */
export function lifelineOf(worker: Worker, moments: readonly Moment[]): Lifeline {
  const { status, startedAt, endedAt } = worker;
  const timing = timingOf(worker);
  const ended = endedAt === undefined ? undefined : Date.parse(endedAt) / 1000;
  const isOver = status === "dead" || status === "stopped";
  const heard = heardOf(moments, worker.id);
  const marks: Mark[] = [
    ...(startedAt === undefined
      ? []
      : [{ at: Date.parse(startedAt) / 1000, kind: "joined" } as const]),
    ...silences(heard, timing, isOver),
    ...(isOver && ended !== undefined ? [{ at: ended, kind: status } as const] : []),
  ];
  return { beats: heard.map(({ at }) => at), timing, marks: marks.toSorted((a, b) => a.at - b.at) };
}

/** Only as far as somebody looked: while nobody does, a worker may beat as ever. */
function silences(
  heard: readonly Heard[],
  { heartbeatSeconds, timeoutSeconds }: Timing,
  isOver: boolean,
): Mark[] {
  const late = Math.max(2 * heartbeatSeconds, UNSEEN_SECONDS);
  const lost = Math.max(timeoutSeconds, UNSEEN_SECONDS);
  return heard.flatMap(({ at, until }, index): Mark[] => {
    const next = heard[index + 1];
    const isSeen = next !== undefined && next.seenAt - until <= CLOSE_SECONDS;
    const seconds = (isSeen ? next.at : until) - at;
    if (seconds <= late || (next === undefined && isOver)) return [];
    const mark: Mark =
      seconds > lost
        ? { at: at + timeoutSeconds, kind: "lost", seconds }
        : { at: at + late, kind: "late", seconds };
    return next === undefined ? [mark] : [mark, { at: next.at, kind: "back", seconds }];
  });
}
